"""The tokenizer is found under the name the server gives (by `transformers`, as always)."""

from tests.sdks.scripting import base_sampler, new_model

tokenizer = new_model().get_tokenizer()
tokens = list(tokenizer.encode("2+3=5", add_special_tokens=False))
assert tokens == list(b"2+3=5"), tokens
assert tokenizer.decode(tokens) == "2+3=5"

sampler = base_sampler()
if hasattr(sampler, "get_tokenizer"):  # 0.16
    assert sampler.get_tokenizer().decode(tokens) == "2+3=5"
