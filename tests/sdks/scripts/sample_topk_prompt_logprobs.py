"""The likeliest tokens at each place of the prompt come with a sample."""

from tests.sdks.scripting import PROMPT, base_sampler, prompt
from tinker import types

answer = base_sampler().sample(
    prompt(), 1, types.SamplingParams(max_tokens=2),
    include_prompt_logprobs=True, topk_prompt_logprobs=3,
).result()  # fmt: skip
top, own = answer.topk_prompt_logprobs, answer.prompt_logprobs
assert top is not None
assert own is not None
assert len(top) == len(PROMPT), top
assert top[0] is None, top
for place in range(1, len(PROMPT)):
    row, exact = top[place], own[place]
    assert row is not None
    assert exact is not None
    assert len(row) == 3, row
    ids, logprobs = [pair[0] for pair in row], [pair[1] for pair in row]
    assert logprobs == sorted(logprobs, reverse=True), row
    if PROMPT[place] in ids:
        assert abs(logprobs[ids.index(PROMPT[place])] - exact) < 1e-3, (row, exact)
