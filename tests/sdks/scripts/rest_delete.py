"""A checkpoint is deleted, by its path or its id, and is gone."""

import tinker
from tests.sdks.scripting import model_id, new_model, refused, rest

training = new_model()
model = model_id(training)
path = training.save_state("one").result().path
training.save_weights_for_sampler("two").result()

client = rest()
client.delete_checkpoint_from_tinker_path(path).result()
client.delete_checkpoint(model, "sampler_weights/two").result()
assert client.list_checkpoints(model).result().checkpoints == []
refused(lambda: training.load_state(path).result(), says="one")
refused(
    lambda: client.delete_checkpoint_from_tinker_path(path).result(),
    says="one",
    by=tinker.NotFoundError,
)
