"""A base model is sampled from; each token comes with its log-probability."""

from tests.sdks.scripting import MODEL, base_sampler, sample

sampler = base_sampler()
[sequence] = sample(sampler, max_tokens=5, stop=[])
assert len(sequence.tokens) == 5, sequence
assert len(sequence.logprobs) == 5, sequence
assert all(value <= 0 for value in sequence.logprobs), sequence
assert sequence.stop_reason == "length", sequence
if hasattr(sampler, "get_base_model"):  # 0.16
    assert sampler.get_base_model() == MODEL
