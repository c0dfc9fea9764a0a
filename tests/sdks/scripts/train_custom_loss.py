"""A loss written in the client, over torch tensors."""

import torch
from tests.sdks.scripting import datum, logprobs, new_model
from tinker import types


def likelier(data: list[types.Datum], found: list[torch.Tensor]):
    loss = -torch.cat(found).sum()
    return loss, {"mine": float(loss.detach())}


training = new_model()
before = logprobs(training)
for _ in range(3):
    output = training.forward_backward_custom([datum()], likelier).result()
    training.optim_step(types.AdamParams(learning_rate=0.01)).result()
    assert "mine" in output.metrics, output.metrics
assert sum(logprobs(training)) > sum(before)
