"""A bad datum in the second of three requests fails the batch and leaves the client usable."""

from tests.sdks.scripting import broken_datum, chunk, datum, learn, new_model, refused
from tinker import types

training = new_model()
data = [datum([i % 50, (i + 1) % 50]) for i in range(2 * chunk() + 10)]
data[chunk() + 3] = broken_datum()
refused(lambda: training.forward_backward(data, "cross_entropy").result(), says="target_tokens")
refused(lambda: training.optim_step(types.AdamParams()).result(), says="gradient")
losses = learn(training, steps=3)
assert losses[-1] < losses[0], losses
