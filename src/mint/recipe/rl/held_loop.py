"""Users' code on the event loop: whoever holds it is named, since everybody else stands still."""

import logging
import time
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from mint.recipe.rl.class_hints import say_once

_log = logging.getLogger("mint.recipe.rl.held_loop")

T = TypeVar("T")

LONGEST_S = 1.0
"""How long a step may hold the loop before it is named."""


class Watched(Generic[T]):
    """Awaits a coroutine as `await` does, and times each stretch in which it held the loop.

    Waiting is free, however long: only the time between two awaits counts.
    """

    def __init__(self, coroutine: Awaitable[T], owner: type, method: str = "step") -> None:
        """
        Args:
            owner, method: whose coroutine it is.
        """
        self._coroutine = coroutine
        self._owner = owner
        self._method = method

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._coroutine.__await__()
        resume, argument = steps.send, None
        while True:
            began = time.perf_counter()
            try:
                waited_for = resume(argument)
            except StopIteration as finished:
                return finished.value
            finally:
                self._note(time.perf_counter() - began)
            try:
                argument = yield waited_for
                resume = steps.send
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # cancellation, and whatever else it has to see
                resume, argument = steps.throw, error

    def _note(self, held_s: float) -> None:
        if held_s > LONGEST_S:
            say_once(
                _log,
                self._owner,
                "%s.%s held the event loop for %.1f s: no other rollout moved meanwhile. Await "
                "what takes long, or move it to a thread: `await asyncio.to_thread(...)`.",
                self._owner.__name__,
                self._method,
                held_s,
            )
