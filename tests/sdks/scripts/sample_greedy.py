"""Temperature 0 takes the likeliest token each time; top_k and top_p of one do so too."""

from typing import Any

from tests.sdks.scripting import base_sampler, sample

sampler = base_sampler()
[greedy] = sample(sampler, temperature=0.0, stop=[])
each: dict[str, Any]
for each in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}):
    [other] = sample(sampler, stop=[], **each)
    assert list(other.tokens) == list(greedy.tokens), each
