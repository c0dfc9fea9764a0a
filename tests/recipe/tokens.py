"""A tokenizer small enough to count by hand: a byte is a token, and so is each special text."""

import re
from collections.abc import Sequence

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip
"""Their ids count up from 256."""

ID = {text: 256 + i for i, text in enumerate(SPECIAL)}
_EITHER = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")


class ByteTokenizer:
    """Only what a renderer may ask for: encode, decode, eos_token_id, bos_token (and a chat
    template, if it is given one)."""

    def __init__(
        self,
        *,
        eos_token: str = "<|endoftext|>",
        bos_token: str | None = None,
        chat_template: str | None = None,
    ) -> None:
        self.eos_token = eos_token
        self.eos_token_id = ID[eos_token]
        self.bos_token = bos_token
        self.chat_template = chat_template

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        tokens: list[int] = []
        for piece in _EITHER.split(text):
            tokens += [ID[piece]] if piece in ID else piece.encode()
        return tokens

    def decode(self, ids: Sequence[int], /) -> str:
        whole = b"".join(
            SPECIAL[number - 256].encode() if number >= 256 else bytes([number]) for number in ids
        )
        return whole.decode(errors="replace")
