"""Without max_tokens a sample runs until it stops or the context is full."""

import tinker
from tests.sdks.scripting import PROMPT, base_sampler, prompt
from tinker import types

CONTEXT = 512  # of the model this server has

asked = types.SamplingParams(temperature=0.0)
service = tinker.ServiceClient()
[sequence] = base_sampler(service).sample(prompt(), 1, asked).result().sequences
if sequence.stop_reason == "length":
    assert len(sequence.tokens) == CONTEXT - len(PROMPT), len(sequence.tokens)
else:
    assert sequence.stop_reason == "stop", sequence
