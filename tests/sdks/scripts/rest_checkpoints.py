"""Checkpoints are listed, of a run and of all runs, in pages."""

from tests.sdks.scripting import learn, model_id, new_model, rest

training = new_model()
learn(training, steps=1)
model = model_id(training)
training.save_state("one").result()
training.save_state("two").result()
training.save_weights_for_sampler("three").result()

client = rest()
found = client.list_checkpoints(model).result().checkpoints
assert [(each.checkpoint_id, each.checkpoint_type) for each in found] == [
    ("sampler_weights/three", "sampler"),
    ("weights/two", "training"),
    ("weights/one", "training"),
], found
assert all(each.time.tzinfo is not None for each in found), found
assert not any(each.public for each in found), found

first = client.list_user_checkpoints(limit=2).result().checkpoints
then = client.list_user_checkpoints(limit=1, offset=2).result().checkpoints
listed = [each.tinker_path for each in [*first, *then]]
assert listed == [each.tinker_path for each in found], listed
