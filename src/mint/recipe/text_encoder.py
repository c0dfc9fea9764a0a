"""Text to tokens and back, on copies of our own: renderers run in threads, and the tokenizer is
the user's.

A fast tokenizer has one switch for how it reads special tokens in text, and calls from several
threads flip it under each other ("Already borrowed"). Nothing here touches the user's object after
it was copied once.
"""

import copy
import re
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mint.recipe.exceptions import RendererError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer


class Tokenizer(Protocol):
    """What a renderer needs of a tokenizer. Those of transformers have it; so has a class of your
    own with these four."""

    @property
    def eos_token_id(self) -> Any: ...

    @property
    def bos_token(self) -> Any: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]:
        """Token ids; a special token's text in it becomes that token."""
        ...

    def decode(self, ids: Any, /) -> Any:
        """Text, special tokens included."""
        ...


class TextEncoder(Protocol):
    """One tokenizer, safe to use from any thread."""

    def ordinary(self, text: str) -> list[int]:
        """Tokens of what somebody said: the text of a special token in it stays text."""
        ...

    def markup(self, text: str) -> list[int]:
        """Tokens of what a template says: the text of a special token becomes that token."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones included. Never raises: what is no text becomes U+FFFD."""
        ...

    def special(self, text: str) -> int | None:
        """The id of a special token by its text; None if the tokenizer has no such token."""
        ...

    def find_special(self, text: str) -> list[tuple[int, int]]:
        """Where the text of a special token begins and ends: what `ordinary` and `markup` read
        differently."""
        ...


def token(encoder: TextEncoder, text: str) -> int:
    """The id of a token that a renderer cannot do without.

    Raises:
        RendererError: this tokenizer has no such token, so it belongs to another family.
    """
    found = encoder.special(text)
    if found is None:
        raise RendererError(
            f"the tokenizer has no single token {text!r}, which this renderer needs. Use a renderer "
            'of the model\'s own family, or "hf_template" if it has a chat template.'
        )
    return found


class FastEncoder:
    """On private copies of a `tokenizers` object, made when first needed (0.3 to 0.9 s for a
    vocabulary of 150k)."""

    def __init__(self, original: "FastTokenizer") -> None:
        self._ordinary = _copy_of(original)
        self._ordinary.encode_special_tokens = True  # set once, before anybody else sees it
        added = original.get_added_tokens_decoder()
        self._single = {token.content: number for number, token in added.items()}
        special = [token.content for token in added.values() if token.special and token.content]
        self._suspects = re.compile(
            "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
        )
        self._markup: FastTokenizer | None = None
        self._lock = threading.Lock()

    def ordinary(self, text: str) -> list[int]:
        return self._ordinary.encode(text, add_special_tokens=False).ids

    def markup(self, text: str) -> list[int]:
        if self._markup is None:
            with self._lock:
                if self._markup is None:
                    made = _copy_of(self._ordinary)
                    made.encode_special_tokens = False
                    self._markup = made
        return self._markup.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._ordinary.decode(list(tokens), skip_special_tokens=False)

    def special(self, text: str) -> int | None:
        return self._single.get(text)

    def find_special(self, text: str) -> list[tuple[int, int]]:
        return [found.span() for found in self._suspects.finditer(text) if found.group()]


class PlainEncoder:
    """On any other tokenizer, as it is: such a class keeps no state that a call could change.

    Special tokens in ordinary text are cut in two before they are encoded, so that their pieces
    cannot become the token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = weakref.ref(tokenizer)  # we are kept by a table that must not keep it
        told = [str(text) for text in getattr(tokenizer, "all_special_tokens", ()) if text]
        self._suspects = re.compile("|".join([*map(re.escape, told), _LOOKS_SPECIAL]))

    def ordinary(self, text: str) -> list[int]:
        tokens: list[int] = []
        start = 0
        for begin, _ in self.find_special(text):
            tokens += self.markup(text[start : begin + 1])
            start = begin + 1
        return tokens + self.markup(text[start:])

    def markup(self, text: str) -> list[int]:
        return list(self._alive().encode(text, add_special_tokens=False)) if text else []

    def decode(self, tokens: Sequence[int]) -> str:
        decode = self._alive().decode
        try:
            return decode(list(tokens))
        except (UnicodeDecodeError, KeyError, IndexError):
            return "".join(_or_unreadable(decode, number) for number in tokens)

    def special(self, text: str) -> int | None:
        tokens = self.markup(text)
        return tokens[0] if len(tokens) == 1 else None

    def find_special(self, text: str) -> list[tuple[int, int]]:
        suspects = self._suspects.finditer(text)
        return [found.span() for found in suspects if self.special(found.group()) is not None]

    def _alive(self) -> Tokenizer:
        tokenizer = self._tokenizer()
        if tokenizer is None:
            raise RendererError("the tokenizer of this encoder is gone: keep a reference to it.")
        return tokenizer


_LOOKS_SPECIAL = r"<\|[^<>|\s]{1,60}\|>|</?s>"
"""How special tokens are written where the tokenizer does not list its own."""


def _or_unreadable(decode: Any, number: int) -> str:
    try:
        return decode([number])
    except (UnicodeDecodeError, KeyError, IndexError):
        return "�"


def _copy_of(fast: "FastTokenizer") -> "FastTokenizer":
    copied = copy.deepcopy(fast)
    copied.no_truncation()
    copied.no_padding()
    return copied


# ------------------------------------------------------- one per tokenizer


_encoders: dict[int, tuple["weakref.ref[Any]", TextEncoder]] = {}
_making = threading.Lock()


def encoder_for(tokenizer: Tokenizer) -> TextEncoder:
    """The encoder of this tokenizer object, made once and forgotten with it.

    By identity: tokenizers may compare equal or have no hash, and another object may be set up
    otherwise.
    """
    key = id(tokenizer)
    known = _encoders.get(key)
    if known is None or known[0]() is not tokenizer:
        with _making:
            known = _encoders.get(key)
            if known is None or known[0]() is not tokenizer:
                known = _watch(tokenizer, key), _make(tokenizer)
                _encoders[key] = known
    return known[1]


def _watch(tokenizer: Tokenizer, key: int) -> "weakref.ref[Any]":
    def forget(gone: "weakref.ref[Any]") -> None:
        if (known := _encoders.get(key)) and known[0] is gone:  # not one made since, at its address
            del _encoders[key]

    return weakref.ref(tokenizer, forget)


def _make(tokenizer: Tokenizer) -> TextEncoder:
    fast = fast_tokenizer(tokenizer)
    return PlainEncoder(tokenizer) if fast is None else FastEncoder(fast)


def special_ids(tokenizer: Any) -> list[int]:
    """Ids that stand for no text: what the tokenizer lists, or else its end token."""
    listed = getattr(tokenizer, "all_special_ids", None)
    if listed is not None:
        return list(listed)
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def fast_tokenizer(tokenizer: Any) -> "FastTokenizer | None":
    """The `tokenizers` object inside, if there is one. Imports nothing: where that package has not
    been imported, no object of its kind exists."""
    package = sys.modules.get("tokenizers")
    inside = getattr(tokenizer, "backend_tokenizer", None)
    return inside if package is not None and isinstance(inside, package.Tokenizer) else None
