"""Who may run: requests in order of arrival, against sequences and KV tokens.

Holds every list of requests, prompts and sequences; computes nothing.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Any, TypeVar

from mint.core.model_input import Tokens
from mint.core.operations import Sample
from mint.torch_engine.kv_store import KvStore, KvText
from mint.torch_engine.lora import AdapterWeights
from mint.torch_engine.prompt_scores import PromptScores
from mint.torch_engine.sequences import Prompt, Request, Sequence

T = TypeVar("T")

FIRST_ROOM = 64
"""Tokens a sequence finds room for when it joins; beyond them it asks again, for half as many more
each time. Most requests leave max_tokens open or end long before it, so reserving their longest
continuation would keep most of the room empty."""
_SPARE = 16
"""A sequence joins others only if one part in so many of the budget stays free: they will grow,
and it would soon be set back."""


@dataclass(eq=False)
class SamplingFigures:
    """What happened since the process began."""

    prompt_tokens: int = 0
    """Of all prompts that were let in."""
    reused_tokens: int = 0
    """Those of them that need not be computed: cached, or shared with another prompt."""
    set_back: int = 0
    """How often a sequence gave its room up, to be continued later."""


class Admission:
    """Lets sequences in while there is room, and puts their room back when they leave.

    Strictly first come, first served: a request that does not fit holds up those behind it, so
    that a large one is never starved by small ones. It may enter sequence by sequence.

    A sequence enters with room for a few tokens and grows. When there is none left, the youngest
    is set back: it keeps its tokens, gives its room up, and enters again before all who never
    ran. The oldest is never set back, so something always ends.
    """

    def __init__(self, kv: KvStore[Any], max_sequences: int, figures: SamplingFigures) -> None:
        self._kv = kv
        self._max_sequences = max_sequences
        self._figures = figures
        self._arrivals = itertools.count()
        self._shared: dict[tuple[int, bytes], Prompt] = {}
        self._placed: dict[Prompt, None] = {}
        self._waiting: deque[Request] = deque()
        """Requests with sequences that were never admitted."""
        self._set_back: deque[Sequence] = deque()
        """Oldest first; all of them older than those who were never admitted, and younger than
        those who are."""
        self.prefilling: list[Prompt] = []
        """Prompts that have room, but not all of their keys and values."""
        self.fresh: dict[Sequence, None] = {}
        """Admitted sequences without a token, in order."""
        self.resuming: dict[Sequence, None] = {}
        """Those that were set back, until their keys and values are there again."""
        self.running: dict[Sequence, None] = {}

    # ------------------------------------------------------------------- asked

    @property
    def admitted(self) -> int:
        return len(self.fresh) + len(self.resuming) + len(self.running)

    @property
    def waiting(self) -> int:
        """Sequences that have no room now."""
        return len(self._set_back) + sum(request.unadmitted for request in self._waiting)

    @property
    def front(self) -> Request:
        """Whose turn it is to be admitted."""
        return self._set_back[0].request if self._set_back else self._waiting[0]

    def placed(self) -> Iterator[Prompt]:
        """Prompts that have room."""
        return iter(self._placed)

    # ---------------------------------------------------------------- requests

    def prompt(
        self, tokens: Tokens, weights: AdapterWeights | None, sample: Sample, seed: int
    ) -> Prompt:
        """The prompt of a new request: one that is here already where that will do."""
        scores = PromptScores(sample, tokens, seed) if PromptScores.wanted(sample) else None
        new = Prompt(tokens, weights, self._kv.names.of(weights, tokens), scores)
        found = self._shared.setdefault(new.key, new)
        prompt = new if scores else found
        if prompt is not new:
            self._figures.prompt_tokens += len(tokens)
            self._figures.reused_tokens += len(tokens)
        prompt.requests += 1
        return prompt

    def add(self, request: Request) -> None:
        request.arrival = next(self._arrivals)
        self._waiting.append(request)

    def forget(self, request: Request) -> None:
        """A request has ended, in whatever way: everything only it held is free again."""
        for sequence in request.sequences:
            self.leave(sequence)
        if request.unadmitted and request in self._waiting:
            self._waiting.remove(request)
        # Sequences and request refer to each other, and would keep the weights until the next
        # search for such circles.
        request.sequences.clear()
        prompt = request.prompt
        prompt.requests -= 1
        if not prompt.requests:
            self._put_back(prompt)
            if self._shared.get(prompt.key) is prompt:
                del self._shared[prompt.key]

    # --------------------------------------------------------------- in and out

    def admit(self) -> None:
        """Let in as many of the waiting sequences as fit now.

        Whatever this raises (out of memory) is about the request in front: it has no new sequence,
        and those before it are in.
        """
        while self._set_back:
            sequence = self._set_back[0]
            sequence.kv = self._room_again(sequence)
            if not sequence.kv:
                return
            self._set_back.popleft()
            sequence.prompt.active += 1
            group = self.resuming if sequence.tokens else self.fresh
            group[sequence] = None
        while self._waiting:
            request = self._waiting[0]
            room = min(FIRST_ROOM, request.suffix_tokens)
            while request.unadmitted and (kv := self._room(request.prompt, room)):
                request.prompt.active += 1
                self.fresh[request.next_sequence(kv)] = None
            if request.unadmitted:
                return
            self._waiting.popleft()

    def filled(self, prompt: Prompt) -> None:
        """All its keys and values are there."""
        self.prefilling.remove(prompt)

    def note_reused(self, tokens: int) -> None:
        """So many tokens of a prompt need not be computed."""
        self._figures.reused_tokens += tokens

    def start(self, sequence: Sequence) -> None:
        """It has its first token."""
        del self.fresh[sequence]
        self.running[sequence] = None

    def refilled(self) -> Row[Sequence]:
        """Sequences that were set back and have all their keys and values again."""
        return [s for s in self.resuming if s.prompt.is_filled and s.used == len(s.tokens) - 1]

    def go_on(self, sequence: Sequence) -> None:
        """It runs again."""
        self._kv.go_on(sequence.kv)
        del self.resuming[sequence]
        self.running[sequence] = None

    def grow(self) -> None:
        """Make room for one more token of every running sequence, the oldest first; the youngest
        of all are set back where it lacks."""
        full = [s for s in self.running if s.kv and s.used == s.kv.room]
        for sequence in sorted(full, key=lambda s: s.age):
            while sequence in self.running:
                if self._taken(lambda s=sequence: self._grown(s), sequence.prompt):
                    break
                self._set_back_youngest()

    def leave(self, sequence: Sequence) -> None:
        """Put a sequence's room back. Does nothing if it has left already."""
        if sequence in self._set_back:
            self._set_back.remove(sequence)
            return
        group = next((g for g in self._groups() if sequence in g), None)
        if group is None:
            return
        del group[sequence]
        sequence.prompt.active -= 1
        if sequence.used:
            sequence.keys = self._keys(sequence)
        self._kv.close(sequence.kv, sequence.keys)
        sequence.kv = None

    def _groups(self) -> tuple[dict[Sequence, None], ...]:
        return self.fresh, self.resuming, self.running

    def _set_back_youngest(self) -> None:
        youngest = max(itertools.chain(*self._groups()), key=lambda s: s.age)
        self.leave(youngest)
        self._set_back.appendleft(youngest)
        self._figures.set_back += 1

    # --------------------------------------------------------------------- room

    def _room(
        self, prompt: Prompt, room: int, again: int = 0, keys: Row[bytes] = ()
    ) -> KvText | None:
        """Room for one more sequence of a prompt, and for the prompt if it has none, if there is
        some. `again`, `keys`: as of KvStore.new_continuation."""
        if self.admitted >= self._max_sequences:
            return None
        kv, spare = self._kv, self._kv.tokens // _SPARE if self.admitted else 0
        if not prompt.kv:
            tokens = len(prompt.tokens)
            prompt.kv = self._taken(
                lambda: kv.new_prompt(tokens, prompt.keys, then=room, spare=spare), prompt
            )
            if not prompt.kv:
                return None
            self._figures.prompt_tokens += tokens
            self._placed[prompt] = None
            self.prefilling.append(prompt)
        return self._taken(
            lambda: kv.new_continuation(prompt.kv, room, again=again, keys=keys, spare=spare),
            prompt,
        )

    def _room_again(self, sequence: Sequence) -> KvText | None:
        """For one that was set back: its tokens, and some more."""
        tokens = max(0, len(sequence.tokens) - 1)
        room = min(tokens + FIRST_ROOM, sequence.request.suffix_tokens)
        return self._room(sequence.prompt, room, again=tokens, keys=sequence.keys)

    def _grown(self, sequence: Sequence) -> bool:
        return self._kv.grow(sequence.kv, sequence.request.suffix_tokens)

    def _taken(self, take: Callable[[], T], keep: Prompt) -> T:
        """What `take` gives; if that is nothing, once more when prompts have left that are only
        kept for requests further back, which would otherwise block those in front."""
        taken = take()
        if not taken:
            for prompt in list(self._placed):
                if not prompt.active and prompt is not keep:
                    self._put_back(prompt)
            taken = take()
        return taken

    def _put_back(self, prompt: Prompt) -> None:
        """Give up a prompt's room; admitting it again computes what is not cached again."""
        if not prompt.kv:
            return
        if prompt in self.prefilling:
            self.prefilling.remove(prompt)
        del self._placed[prompt]
        self._kv.close(prompt.kv, prompt.keys)
        prompt.kv = prompt.last_hidden_E = None

    def _keys(self, sequence: Sequence) -> list[bytes]:
        """The blocks of a prompt and of what follows it that has keys and values."""
        prompt, after = sequence.prompt, sequence.tokens[: sequence.used]
        return self._kv.names.longer(prompt.weights, prompt.tokens, prompt.keys, after)
