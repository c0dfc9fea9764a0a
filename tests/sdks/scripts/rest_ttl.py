"""A checkpoint is given a lifetime, and for ever again."""

from tests.sdks.scripting import model_id, needs, new_model, rest

client = rest()
live_for = needs(client, "set_checkpoint_ttl_from_tinker_path")
training = new_model()
model = model_id(training)
path = training.save_state("passing").result().path


def ends():
    [found] = client.list_checkpoints(model).result().checkpoints
    return found.expires_at


assert ends() is None
live_for(path, 7200).result()
assert ends() is not None
assert ends().tzinfo is not None
live_for(path, None).result()
assert ends() is None
