"""A checkpoint is published and withdrawn; twice is no mistake."""

from tests.sdks.scripting import model_id, new_model, rest

training = new_model()
model = model_id(training)
path = training.save_state("shared").result().path
client = rest()


def is_public() -> bool:
    [found] = client.list_checkpoints(model).result().checkpoints
    return found.public


for _ in range(2):
    client.publish_checkpoint_from_tinker_path(path).result()
    assert is_public()
for _ in range(2):
    client.unpublish_checkpoint_from_tinker_path(path).result()
    assert not is_public()
