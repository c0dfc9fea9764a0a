"""Sampling requests on their way out: those alike leave as one, and only so many are out at once.

The G members of a group ask for the same first prompt at the same moment. Sent as one request for G
samples, the prompt crosses the network once and is computed once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mint import types
from mint.recipe import service

MOST_TOGETHER = 64
"""Samples of one request; services set a limit of their own, ours at 1024."""


GLANCE = 64
"""Tokens at a prompt's end, among which are those of its last question."""


class RequestSlots:
    """At most `limit` requests at once; those that wait go in order of arrival.

    One for all completers of a run. It belongs to no event loop and can be used in several, one
    after the other.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit}: no request could ever leave. Use 1 or more, or None.")
        self.limit = limit
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one slot."""
        await self._take()
        try:
            yield
        finally:
            self._give_back()

    async def _take(self) -> None:
        if self.limit is None or self.in_flight < self.limit:
            self.in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it had just been handed a slot
            else:
                self._waiting.remove(turn)
            raise

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the slot changes hands, so in_flight stays
                return
        self.in_flight -= 1


@dataclass(frozen=True)
class Drawn:
    """One sequence of a request's answer."""

    sequence: Any
    """The SDK's SampledSequence."""
    cache_hit_tokens: int
    """Tokens of the prompt that were not computed for this sequence."""


@dataclass(frozen=True)
class _Asked:
    prompt: types.ModelInput
    params: types.SamplingParams
    answer: "asyncio.Future[Drawn]"


class JoinedSampling:
    """Samples from one client; equal requests of one turn of the event loop are sent as one.

    A caller that is cancelled leaves its sequence unread and the others undisturbed; when all
    callers of a request are, waiting for it ends. An error reaches every caller of its request.
    """

    def __init__(self, sampling_client: Any, slots: RequestSlots | None = None) -> None:
        self.sampling_client = sampling_client
        self.slots = slots or RequestSlots()
        self._asked: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def draw(self, prompt: types.ModelInput, params: types.SamplingParams) -> Drawn:
        """One continuation of `prompt`."""
        loop = asyncio.get_running_loop()
        if not any(asked.answer.get_loop() is loop for asked in self._asked):
            self._asked.clear()  # what a loop that is gone left behind
            loop.call_soon(self._send)
        asked = _Asked(prompt, params, loop.create_future())
        self._asked.append(asked)
        return await asked.answer

    def _send(self) -> None:
        """Send what was asked for in this turn, one request for each different question."""
        alike: dict[Hashable, list[_Asked]] = {}
        for asked in self._asked:
            question = (asked.prompt.length, asked.params.model_dump_json())
            alike.setdefault(question, []).append(asked)
        self._asked.clear()
        for together in (part for same in alike.values() for part in _by_prompt(same)):
            task = asyncio.get_running_loop().create_task(self._request(together))
            self._sending.add(task)  # the loop itself holds tasks only weakly
            task.add_done_callback(self._sending.discard)
            _end_with_last(task, together)

    async def _request(self, together: list[_Asked]) -> None:
        """One request, and its answer shared out."""
        try:
            async with self.slots.one():
                waiting = [asked for asked in together if not asked.answer.done()]
                response = await service.sample(
                    self.sampling_client,
                    together[0].prompt,
                    num_samples=len(waiting),
                    params=together[0].params,
                )
            _share_out(response, waiting)
        except Exception as error:
            for asked in together:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
        except asyncio.CancelledError:
            for asked in together:
                asked.answer.cancel()
            raise


def _by_prompt(candidates: list[_Asked]) -> Iterator[list[_Asked]]:
    """Those that ask the same, so many at a time. Their parameters and lengths are equal."""
    prompts = {id(asked.prompt): asked.prompt for asked in candidates}
    glances = {name: _glance(prompt) for name, prompt in prompts.items()}
    alike = Counter(glances.values())
    keys: dict[int, Hashable] = {
        name: name if alike[glances[name]] == 1 else _prompt_key(prompt)
        for name, prompt in prompts.items()
    }
    same: dict[Hashable, list[_Asked]] = {}
    for asked in candidates:
        same.setdefault(keys[id(asked.prompt)], []).append(asked)
    for members in same.values():
        for at in range(0, len(members), MOST_TOGETHER):
            yield members[at : at + MOST_TOGETHER]


def _glance(prompt: types.ModelInput) -> Hashable:
    """Its last tokens, however it is cut into chunks: they tell most prompts apart, and reading all
    of a batch's takes as long as the rest of asking."""
    last: list[int] = []
    for chunk in reversed(prompt.chunks):
        if len(last) >= GLANCE:
            break
        if isinstance(chunk, types.EncodedTextChunk):
            last = [*chunk.tokens[-GLANCE:], *last]
    return tuple(last[-GLANCE:])


def _prompt_key(prompt: types.ModelInput) -> Hashable:
    """Equal for prompts of equal tokens; a prompt with images equals only itself."""
    tokens: list[int] = []
    for chunk in prompt.chunks:
        if not isinstance(chunk, types.EncodedTextChunk):
            return id(prompt)
        tokens.extend(chunk.tokens)
    return tuple(tokens)


def _end_with_last(task: "asyncio.Task[None]", together: list[_Asked]) -> None:
    """Cancel a request once nobody waits for it any more."""

    def left(_: "asyncio.Future[Drawn]") -> None:
        if all(asked.answer.done() for asked in together):
            task.cancel()

    for asked in together:
        asked.answer.add_done_callback(left)


def _share_out(response: Any, waiting: list[_Asked]) -> None:
    hits = service.cache_hit_tokens(response)
    for asked, sequence in zip(waiting, response.sequences, strict=True):
        if not asked.answer.done():
            asked.answer.set_result(Drawn(sequence, hits))
        hits = asked.prompt.length  # computed for the first, and found by the others
