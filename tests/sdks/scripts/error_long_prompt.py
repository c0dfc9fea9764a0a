"""A prompt beyond the context fails with both numbers."""

from tests.sdks.scripting import PROMPT, base_sampler, refused, sample

sampler = base_sampler()
error = refused(lambda: sample(sampler, max_tokens=600), says="512")
assert str(len(PROMPT)) in str(error), error
sample(sampler)
