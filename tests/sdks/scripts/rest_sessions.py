"""Sessions are listed in pages, with their runs and samplers."""

import tinker
from tests.sdks.scripting import base_sampler, model_id, new_model, sample

service = tinker.ServiceClient()
model = model_id(new_model(service))
session = model.split(":")[0]
sample(base_sampler(service))

rest = service.create_rest_client()
sessions = rest.list_sessions(limit=1).result().sessions
assert len(sessions) == 1, sessions
everything = rest.list_sessions(limit=1000).result().sessions
assert session in everything
assert rest.list_sessions(limit=1000, offset=1).result().sessions == everything[1:]

told = rest.get_session(session).result()
assert list(told.training_run_ids) == [model], told
[sampler] = told.sampler_ids
described = rest.get_sampler(sampler).result()
assert described.sampler_id == sampler, described
assert described.base_model == "tiny/llama", described
assert described.model_path is None, described
