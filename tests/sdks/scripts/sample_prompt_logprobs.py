"""The log-probabilities of the prompt come with a sample."""

from tests.sdks.scripting import PROMPT, base_sampler, close, prompt
from tinker import types

sampler = base_sampler()
answer = sampler.sample(
    prompt(), 1, types.SamplingParams(max_tokens=2), include_prompt_logprobs=True
).result()
found = answer.prompt_logprobs
assert found is not None
assert len(found) == len(PROMPT), found
assert found[0] is None, found
assert all(value is not None and value < 0 for value in found[1:]), found
assert close(found, sampler.compute_logprobs(prompt()).result())
plain = sampler.sample(prompt(), 1, types.SamplingParams(max_tokens=2)).result()
assert plain.prompt_logprobs is None, plain
