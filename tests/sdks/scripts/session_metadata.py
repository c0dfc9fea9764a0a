"""A session carries tags of its user: metadata, and a name where the version has one."""

import inspect
from typing import Any

import tinker
from tests.sdks.scripting import model_id, new_model

options: dict[str, Any] = {"user_metadata": {"purpose": "a test"}}
if "display_name" in inspect.signature(tinker.ServiceClient.__init__).parameters:
    options["display_name"] = "Tuesday"
service = tinker.ServiceClient(**options)
session = model_id(new_model(service)).split(":")[0]

told = service.create_rest_client().get_session(session).result()
metadata = getattr(told, "user_metadata", None)
assert metadata in (None, {"purpose": "a test"}), metadata
assert getattr(told, "display_name", "Tuesday") == "Tuesday", told
