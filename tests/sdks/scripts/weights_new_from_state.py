"""A new model starts from a checkpoint, its optimizer fresh."""

import tinker
from tests.sdks.scripting import close, done, learn, logprobs, model_id, new_model

training = new_model(rank=8)
learn(training)
path = training.save_state("base").result().path

service = tinker.ServiceClient()
started = done(service.create_training_client_from_state(path))
assert close(logprobs(started), logprobs(training))
assert model_id(started) != model_id(training)
assert started.get_info().lora_rank == 8
learn(started, steps=1)
