"""A prompt is scored at its last tokens only, and other tokens are drawn at each of its places."""

import inspect

from tests.sdks.scripting import PROMPT, base_sampler, close, prompt, skip
from tinker import types

sampler = base_sampler()
if "prompt_alt_tokens_k" not in inspect.signature(sampler.sample).parameters:
    skip("cannot ask for them")
everything = sampler.compute_logprobs(prompt()).result()
last = sampler.compute_logprobs(prompt(), prompt_logprobs_last_n=3).result()
assert last[:-3] == [None] * (len(PROMPT) - 3), last
assert close(last[-3:], everything[-3:]), (last, everything)

asked = types.SamplingParams(max_tokens=2)
drawn = sampler.sample(prompt(), 1, asked, prompt_alt_tokens_k=4).result().prompt_alt_tokens
assert drawn is not None
assert drawn.tokens.to_numpy().shape == (len(PROMPT) - 1, 4), drawn
assert drawn.logprobs.to_numpy().shape == (len(PROMPT) - 1, 4), drawn
assert (drawn.logprobs.to_numpy() <= 0).all(), drawn
