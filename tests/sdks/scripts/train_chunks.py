"""A batch of several requests is put together again: outputs in order, losses added."""

from tests.sdks.scripting import chunk, close, datum, new_model

training = new_model()
count = 2 * chunk() + 10
data = [datum([i % 50, (i + 1) % 50]) for i in range(count)]
output = training.forward_backward(data, "cross_entropy").result()

logprobs = [each["logprobs"].tolist()[0] for each in output.loss_fn_outputs]
assert len(logprobs) == count, len(logprobs)
assert abs(output.metrics["loss:sum"] + sum(logprobs)) < 1e-4 * count, output.metrics
assert all(close(logprobs[:50], logprobs[i : i + 50]) for i in range(0, count - 50, 50))
