"""Byte-level BPE tokenizers built from a vocabulary, and the two files they are kept in.

Needs neither torch nor transformers. The files are what `transformers.AutoTokenizer` and
`tokenizers.Tokenizer.from_file` read.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""A plain chat template: what ChatML says and nothing more."""

WORDS_TO_BYTES: PreTokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
"""Cut at words as GPT-2 does, then bytes."""


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The roles special tokens play, and the chat template that uses them."""

    eos: str
    bos: str | None = None
    pad: str | None = None
    unk: str | None = None
    chat_template: str | None = CHATML


def byte_level_bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special: Iterable[str],
    pre_tokenizer: PreTokenizer,
    *,
    nfc: bool = False,
) -> Tokenizer:
    """A byte-level BPE tokenizer: every text has tokens, and decoding them gives it back.

    Args:
        vocab: token, written in byte letters, to id; special tokens included.
        merges: pairs of tokens, the earliest joined first.
        special: tokens of `vocab` that are found whole in a text and never split.
        pre_tokenizer: cuts the text and ends with ByteLevel; merges never cross a cut.
        nfc: normalise to NFC first, as Qwen does (decoding then gives the normalised text).
    """
    tokenizer = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return tokenizer


@cache
def byte_letters() -> tuple[str, ...]:
    """The letter that stands for each byte in a byte-level vocabulary (GPT-2's convention).

    Printable Latin-1 characters stand for themselves; the rest get U+0100 onwards, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


def bytes_only(special: Sequence[str]) -> Tokenizer:
    """No merges: token id = byte value, then the special tokens from 256 on."""
    vocab = {letter: byte for byte, letter in enumerate(byte_letters())}
    vocab |= {token: 256 + i for i, token in enumerate(special)}
    return byte_level_bpe(vocab, [], special, WORDS_TO_BYTES)


def write_tokenizer(folder: Path, tokenizer: Tokenizer, special: SpecialTokens) -> None:
    """Write tokenizer.json and tokenizer_config.json, as `AutoTokenizer` reads them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        # Generic on purpose: a family's own class would rebuild the pre-tokenizer to its taste.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special.bos,
        "eos_token": special.eos,
        "pad_token": special.pad,
        "unk_token": special.unk,
        "clean_up_tokenization_spaces": False,
        "chat_template": special.chat_template,
    }
    kept = {key: value for key, value in settings.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept, indent=2, ensure_ascii=False))
