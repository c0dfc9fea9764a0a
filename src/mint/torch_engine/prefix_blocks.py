"""Blocks of texts by name: whoever begins alike finds the same ones.

A block's name is a hash of everything up to its end: the weights, the name of the block before it,
its tokens. So a block is found only where all that its keys and values depend on is the same.
"""

import hashlib
import itertools
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from mint.core.model_input import Tokens
from mint.torch_engine.lora import AdapterWeights

_BASE_MODEL = bytes(8)

Key = bytes
"""Name of a block; it begins with the 8 bytes that stand for its weights."""

BlockT = TypeVar("BlockT")


class BlockNames:
    """Names of a text's whole blocks."""

    def __init__(self, size: int) -> None:
        """Blocks of `size` tokens."""
        self.size = size
        self._roots: weakref.WeakKeyDictionary[AdapterWeights, bytes] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._dead: list[bytes] = []

    def of(
        self, weights: AdapterWeights | None, tokens: Tokens, before: Sequence[Key] = ()
    ) -> list[Key]:
        """`before`, which are known, and those that `tokens` add to them."""
        root = self._root(weights)
        name = before[-1] if before else root
        data = np.ascontiguousarray(tokens, dtype=np.int32).tobytes()
        size = 4 * self.size
        found = list(before)
        for at in range(0, len(data) - size + 1, size):
            name = root + hashlib.blake2b(name + data[at : at + size], digest_size=16).digest()
            found.append(name)
        return found

    def longer(
        self,
        weights: AdapterWeights | None,
        prompt: Tokens,
        before: Sequence[Key],
        tokens: Sequence[int],
    ) -> list[Key]:
        """Of a prompt, whose own are `before`, and the tokens that follow it."""
        rest = prompt[len(prompt) // self.size * self.size :]
        return self.of(weights, np.concatenate([rest, np.array(tokens, np.int32)]), before)

    def dead(self) -> list[bytes]:
        """How names begin of weights that have gone since this was asked last."""
        # Not in the finalizer itself, which may run in the middle of anything here.
        return [self._dead.pop() for _ in range(len(self._dead))]

    def _root(self, weights: AdapterWeights | None) -> bytes:
        """8 bytes that stand for these weights and for no others, ever; object ids come again."""
        if weights is None:
            return _BASE_MODEL
        if weights not in self._roots:
            root = next(self._numbers).to_bytes(8, "little")
            self._roots[weights] = root
            weakref.finalize(weights, self._dead.append, root).atexit = False
        return self._roots[weights]


class PrefixBlocks(ABC, Generic[BlockT]):
    """Blocks by name, least recently used first, the end of a text before its beginning; those of
    weights that nobody holds any more leave at once."""

    def __init__(self, size: int) -> None:
        """Blocks of `size` tokens."""
        self.names = BlockNames(size)
        self._blocks: OrderedDict[Key, BlockT] = OrderedDict()
        """A block comes after all that follow it in a text, so the first of all is never one that
        another needs."""

    def refresh(self, keys: Sequence[Key]) -> int:
        """How many first blocks of a text are here. They are about to be used: others leave before
        them."""
        held = self._held(keys)
        self._touch(keys[:held])
        return held

    def clear(self) -> None:
        """Forget everything."""
        while self._blocks:
            self._drop(next(iter(self._blocks)))

    def _held(self, keys: Sequence[Key]) -> int:
        return next((n for n, key in enumerate(keys) if key not in self._blocks), len(keys))

    def _touch(self, keys: Sequence[Key]) -> None:
        for key in reversed(keys):
            self._blocks.move_to_end(key)

    def _drop(self, key: Key) -> None:
        self._let_go(self._blocks.pop(key))

    def _drop_dead(self) -> None:
        for root in self.names.dead():
            for key in [key for key in self._blocks if key.startswith(root)]:
                self._drop(key)

    @abstractmethod
    def _let_go(self, block: BlockT) -> None:
        """A block has left: its room is free again."""
