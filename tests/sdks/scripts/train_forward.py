"""A forward pass gives a log-probability per token and leaves the model as it is."""

from tests.sdks.scripting import TEXT, close, datum, logprobs, new_model, refused
from tinker import types

training = new_model()
output = training.forward([datum(), datum(TEXT[:5])], "cross_entropy").result()
first, second = (each["logprobs"].tolist() for each in output.loss_fn_outputs)

assert len(first) == len(TEXT) - 1, first
assert close(first[:4], second), (first, second)  # the same beginning
assert all(value < 0 for value in first), first
assert abs(output.metrics["loss:sum"] + sum(first) + sum(second)) < 0.01, output.metrics

refused(lambda: training.optim_step(types.AdamParams()).result(), says="no gradient")
assert close(logprobs(training), first)
