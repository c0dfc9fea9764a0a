"""2,000 futures are outstanding at once, each with a connection of its own, and all are answered."""

import resource
from concurrent.futures import wait

from tests.sdks.scripting import base_sampler, future_of, prompt, sdk, skip
from tinker import types

COUNT = 2000

if sdk()[:2] not in {(0, 16), (0, 38)}:
    skip("tried with 0.16 and 0.38")
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

# One client of 0.16 holds 1,000 polls; two, then. The driver keeps the sampler busy until all are
# there.
samplers = [base_sampler(), base_sampler()]
asked = types.SamplingParams(max_tokens=2, stop=[])
waiting = [samplers[i % 2].sample(prompt(), 1, asked) for i in range(COUNT)]
wait([future_of(each) for each in waiting])
assert sum(len(each.result().sequences[0].tokens) for each in waiting) == 2 * COUNT
