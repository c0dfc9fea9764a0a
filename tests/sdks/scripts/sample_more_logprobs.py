"""Likeliest tokens of what was sampled, and chosen tokens scored in the prompt."""

import inspect

import numpy as np
from tests.sdks.scripting import PROMPT, base_sampler, close, prompt, skip
from tinker import types

sampler = base_sampler()
if "topk_sample_logprobs" not in inspect.signature(sampler.sample).parameters:
    skip("cannot ask for them")
targets = np.array(PROMPT[1:], dtype=np.int64)[:, None]
answer = sampler.sample(
    prompt(), 1, types.SamplingParams(max_tokens=3, stop=[]),
    include_prompt_logprobs=True, topk_sample_logprobs=2,
    target_prompt_logprobs=types.TensorData.from_numpy(targets),
).result()  # fmt: skip
[sequence] = answer.sequences
assert sequence.topk_logprobs is not None
assert [len(row or ()) for row in sequence.topk_logprobs] == [2, 2, 2], sequence.topk_logprobs
assert answer.target_prompt_logprobs is not None
assert answer.prompt_logprobs is not None
scored = answer.target_prompt_logprobs.to_numpy()[:, 0].tolist()
assert close(scored, answer.prompt_logprobs[1:]), (scored, answer.prompt_logprobs)
