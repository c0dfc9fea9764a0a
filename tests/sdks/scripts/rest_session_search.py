"""Sessions are searched by what their user noted, and put into projects."""

import tinker
from tests.sdks.scripting import model_id, needs, new_model
from tinker import types

service = tinker.ServiceClient(user_metadata={"colour": "green"})
rest = service.create_rest_client()
assign = needs(rest, "assign_session_project")
session = model_id(new_model(service)).split(":")[0]
assign(session, "archive").result()
if hasattr(rest, "search_sessions"):  # 0.36
    asked = types.SessionSearchRequest(user_metadata={"colour": "green"}, project_ids=["archive"])
    found = rest.search_sessions(asked).result().sessions
    assert [each.session_id for each in found] == [session], found
