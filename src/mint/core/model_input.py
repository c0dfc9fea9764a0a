"""ModelInput: what a model reads, as chunks."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mint.core.errors import UnsupportedError, UserError

Tokens = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class TokenChunk:
    """Token ids, int32 `[n]`."""

    tokens: Tokens


@dataclass(frozen=True)
class OtherChunk:
    """An image or audio chunk: it is decoded, so that the refusal can name it."""

    kind: str


@dataclass(frozen=True, eq=False)
class ModelInput:
    """Chunks in reading order."""

    chunks: tuple[TokenChunk | OtherChunk, ...]

    @classmethod
    def from_ints(cls, tokens: Iterable[int]) -> "ModelInput":
        return cls((TokenChunk(np.asarray(list(tokens), dtype=np.int32)),))

    def tokens(self) -> Tokens:
        """All token ids in order, int32 `[n]`.

        Raises:
            UnsupportedError: a chunk is not text.
        """
        parts: list[Tokens] = []
        for i, chunk in enumerate(self.chunks):
            if isinstance(chunk, OtherChunk):
                raise UnsupportedError(
                    f"chunk {i} of the input is {chunk.kind}; the models served here read text "
                    "tokens only. Send encoded_text chunks."
                )
            parts.append(chunk.tokens)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def check_tokens(tokens: NDArray[np.generic], *, vocab_size: int, where: str) -> None:
    """Refuse ids outside the model's vocabulary, naming the first one.

    Raises:
        UserError: an id is negative or not below `vocab_size`.
    """
    ids = tokens.astype(np.int64, copy=False)
    bad = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if bad.size:
        at = int(bad[0])
        raise UserError(
            f"{where}[{at}] is token id {int(ids[at])}, but the model's ids run from 0 to "
            f"{vocab_size - 1}. Encode the text with the tokenizer of this model."
        )
