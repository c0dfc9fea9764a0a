"""Runs are listed in pages and described."""

import tinker
from tests.sdks.scripting import MODEL, learn, model_id, new_model

service = tinker.ServiceClient()
models = [new_model(service, user_metadata={"number": str(i)}) for i in range(3)]
ids = [model_id(each) for each in models]
for each in models:
    learn(each, steps=1)

rest = service.create_rest_client()
page = rest.list_training_runs(limit=2).result()
rest_of_them = rest.list_training_runs(limit=100, offset=2).result()
assert len(page.training_runs) == 2, page
assert page.cursor.total_count == 2 + len(rest_of_them.training_runs), page.cursor
listed = [run.training_run_id for run in page.training_runs + rest_of_them.training_runs]
assert listed[:3] == ids[::-1], listed  # the last used first
assert len(set(listed)) == len(listed), "a run is on both pages"

run = rest.get_training_run(ids[0]).result()
assert run.base_model == MODEL, run
assert run.lora_rank == 4, run
assert run.is_lora, run
assert run.user_metadata == {"number": "0"}, run
assert run.last_request_time.tzinfo is not None, run

path = models[0].save_state("here").result().path
run = rest.get_training_run_by_tinker_path(path).result()
assert run.last_checkpoint
assert run.last_checkpoint.tinker_path == path, run
