"""A sample that is not wanted any more is let go, and the next one comes."""

from tests.sdks.scripting import base_sampler, future_of, prompt, sample
from tinker import types

sampler = base_sampler()
long = types.SamplingParams(max_tokens=400, stop=[])
unwanted = [sampler.sample(prompt(), 4, long) for _ in range(4)]
for each in unwanted:
    future = future_of(each)
    future.cancel()
    assert future.cancelled() or future.done()
assert len(sample(sampler, stop=[])[0].tokens) == 8
