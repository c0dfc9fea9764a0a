"""A checkpoint is saved under a name and listed; lifetime, overwriting and metadata where there are."""

import inspect

from tests.sdks.scripting import learn, model_id, new_model, refused, rest

training = new_model()
learn(training, steps=1)
model = model_id(training)
path = training.save_state("first").result().path
assert path == f"tinker://{model}/weights/first", path

taken = inspect.signature(training.save_state).parameters
if "ttl_seconds" in taken:
    training.save_state("passing", ttl_seconds=7200).result()
if "user_metadata" in taken:
    training.save_state("noted", user_metadata={"score": "0.5"}).result()
refused(lambda: training.save_state("first").result(), says="first")
if "overwrite" in taken:
    assert training.save_state("first", overwrite=True).result().path == path

found = {each.checkpoint_id: each for each in rest().list_checkpoints(model).result().checkpoints}
assert found["weights/first"].checkpoint_type == "training", found
assert found["weights/first"].size_bytes > 0, found
if "ttl_seconds" in taken:
    assert getattr(found["weights/passing"], "expires_at", 1), found
if "user_metadata" in taken:
    assert found["weights/noted"].user_metadata == {"score": "0.5"}, found
