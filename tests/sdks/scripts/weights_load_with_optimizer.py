"""A model goes back with its optimizer, and takes the same steps again."""

from tests.sdks.scripting import close, learn, logprobs, new_model

training = new_model()
learn(training)
path = training.save_state("early").result().path
learn(training, steps=2)
expected = logprobs(training)

training.load_state_with_optimizer(path).result()
learn(training, steps=2)
assert close(logprobs(training), expected)
