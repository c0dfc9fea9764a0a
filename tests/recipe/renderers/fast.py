"""A fast tokenizer as transformers has it: one of the package `tokenizers`, and four names around it."""

from collections.abc import Sequence

from tokenizers import Tokenizer


class Fast:
    bos_token = None

    def __init__(self, inside: Tokenizer, *, eos_token: str) -> None:
        self.backend_tokenizer = inside
        self.eos_token_id = inside.token_to_id(eos_token)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], /) -> str:
        return self.backend_tokenizer.decode(list(ids), skip_special_tokens=False)
