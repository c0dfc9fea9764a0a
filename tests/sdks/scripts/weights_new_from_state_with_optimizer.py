"""A new model starts from a checkpoint with its optimizer, and goes on as the old one would."""

import tinker
from tests.sdks.scripting import close, done, learn, logprobs, needs, new_model

service = tinker.ServiceClient()
start = needs(service, "create_training_client_from_state_with_optimizer")
training = new_model()
learn(training)
path = training.save_state("middle").result().path
learn(training, steps=2)

resumed = done(start(path))
learn(resumed, steps=2)
assert close(logprobs(resumed), logprobs(training))
