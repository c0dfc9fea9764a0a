"""When a sequence ends: end tokens, stop ids, stop texts, length."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from mint.core.sampling import Stop, StopReason


@dataclass(frozen=True)
class StopRule:
    """The rule of one request. Pure: the same tokens always end at the same place."""

    ids: frozenset[int]
    texts: tuple[str, ...]
    longest_text: int
    """In bytes of UTF-8: a token is at least one byte, so no stop text spans more tokens."""
    max_tokens: int
    tokenizer: Tokenizer

    @classmethod
    def of(
        cls, stop: Stop, *, eos_ids: Iterable[int], max_tokens: int, tokenizer: Tokenizer
    ) -> "StopRule":
        ids = frozenset(stop.token_ids) | (frozenset(eos_ids) if stop.eos else frozenset())
        longest = max((len(text.encode()) for text in stop.texts), default=0)
        return cls(ids, stop.texts, longest, max_tokens, tokenizer)

    def reason(self, tokens: Sequence[int]) -> StopReason | None:
        """Whether the sequence ends with the last of `tokens` (all sampled so far), and why."""
        if tokens[-1] in self.ids or (self.texts and self._ends_a_stop_text(tokens)):
            return StopReason.STOP
        return StopReason.LENGTH if len(tokens) >= self.max_tokens else None

    def _ends_a_stop_text(self, tokens: Sequence[int]) -> bool:
        """Looks at the text of the last few tokens only.

        A text completed by the last token begins no more than `longest_text` tokens back; one more
        is decoded because some tokenizers strip the space of the first token they decode. A cut
        within a character decodes to U+FFFD and cannot make up another one, UTF-8 being
        self-synchronising; so a character whose bytes are still to come does no harm either.
        """
        tail = list(tokens[-(self.longest_text + 1) :])
        text = self.tokenizer.decode(tail, skip_special_tokens=False)
        return any(stop in text for stop in self.texts)
