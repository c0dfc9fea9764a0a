"""Several samples of one prompt, and several requests at once."""

from tests.sdks.scripting import base_sampler, prompt, sample
from tinker import types

sampler = base_sampler()
sequences = sample(sampler, num_samples=5, stop=[])
assert [len(each.tokens) for each in sequences] == [8] * 5, sequences
assert len({tuple(each.tokens) for each in sequences}) > 1, "they are all the same"

asked = types.SamplingParams(max_tokens=4, stop=[])
waiting = [sampler.sample(prompt(), 2, asked) for _ in range(20)]
assert [len(each.result().sequences) for each in waiting] == [2] * 20
