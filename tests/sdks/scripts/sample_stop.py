"""Sampling ends at a text, at one of several texts, at token ids, or never before its length."""

from tests.sdks.scripting import base_sampler, sample

sampler = base_sampler()
# With a seed, a request can be made again; ids below 128 are the letters themselves.
seed = next(s for s in range(50) if all(
    token < 128 for token in sample(sampler, seed=s, stop=[])[0].tokens
))  # fmt: skip
[free] = sample(sampler, seed=seed, stop=[])
tokens = list(free.tokens)
assert len(tokens) == 8, free
assert free.stop_reason == "length", free

third = tokens[2]
until = tokens[: tokens.index(third) + 1]
for stop in ([third], chr(third), [chr(third)], ["never seen", chr(third)]):
    [ended] = sample(sampler, seed=seed, stop=stop)
    assert list(ended.tokens) == until, (stop, ended.tokens, tokens)
    assert ended.stop_reason == "stop", (stop, ended)
    assert len(ended.logprobs) == len(until), ended
