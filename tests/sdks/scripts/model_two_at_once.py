"""Two models of one session train side by side, each as if alone."""

import tinker
from tests.sdks.scripting import close, datum, learn, logprobs, new_model
from tinker import types

alone = new_model()
learn(alone)

service = tinker.ServiceClient()
one, other = new_model(service), new_model(service, rank=8)
for _ in range(3):
    waiting = []
    for training in (one, other):
        waiting.append(training.forward_backward([datum()], "cross_entropy"))
        waiting.append(training.optim_step(types.AdamParams(learning_rate=0.01)))
    for each in waiting:
        each.result()

assert close(logprobs(one), logprobs(alone)), "the other one had a part in it"
assert not close(logprobs(one), logprobs(other))
