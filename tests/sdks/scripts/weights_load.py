"""A model goes back to a checkpoint in the middle of training."""

from tests.sdks.scripting import close, learn, logprobs, new_model

training = new_model()
learn(training)
path = training.save_state("early").result().path
then = logprobs(training)
learn(training)
assert not close(logprobs(training), then)

training.load_state(path).result()
assert close(logprobs(training), then)
learn(training, steps=1)
