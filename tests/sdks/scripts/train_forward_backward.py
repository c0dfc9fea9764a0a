"""A gradient pass gives loss and log-probabilities, one output per datum."""

from tests.sdks.scripting import TEXT, close, datum, logprobs, new_model

training = new_model()
output = training.forward_backward([datum(), datum(weight=0.5)], "cross_entropy").result()
first, second = (each["logprobs"].tolist() for each in output.loss_fn_outputs)

assert close(first, second), (first, second)
assert close(first, logprobs(training)), "forward and forward_backward differ"
assert abs(output.metrics["loss:sum"] + 1.5 * sum(first)) < 0.01, output.metrics
assert all(name.count(":") == 1 for name in output.metrics), output.metrics
assert len(first) == len(TEXT) - 1
