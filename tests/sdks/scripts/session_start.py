"""A session is opened, listed and described."""

import tinker
from tests.sdks.scripting import model_id, new_model

service = tinker.ServiceClient(user_metadata={"purpose": "a test"})
model = model_id(new_model(service))
session = model.split(":")[0]

rest = service.create_rest_client()
assert session in rest.list_sessions().result().sessions
described = rest.get_session(session).result()
assert list(described.training_run_ids) == [model], described
