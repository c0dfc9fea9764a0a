"""`tinker run list` and `tinker run info`."""

from tests.sdks.scripting import command, model_id, new_model

model = model_id(new_model())
listed = command("run", "list")
assert model in {run["training_run_id"] for run in listed["runs"]}, listed
told = command("run", "info", model)
assert told["training_run_id"] == model, told
