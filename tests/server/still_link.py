"""A link to an engine process that never does anything by itself: tests end operations."""

import asyncio
from collections.abc import Callable, Iterable

from mint.core.ids import OperationId
from mint.server.channel import EngineHealth, EnginePhase
from mint.server.channel.health import Doing

CAPACITY = {
    "running_sequences": 3,
    "waiting_sequences": 1,
    "max_sequences": 8,
    "loaded_models": ("tiny",),
    "adapters": 2,
    "memory_bytes": 1000,
    "memory_limit_bytes": 4000,
    "device": "cuda:0",
    "dtype": "bfloat16",
    "threads": 6,
    "busy_s": 1.5,
    "cached_tokens": 320,
    "prompt_tokens": 900,
    "reused_prompt_tokens": 600,
    "sequences_set_back": 5,
}


class StillLink:
    """Fulfils mint.server.service.link.Link. `on_wake` runs at each wake, in the event loop."""

    def __init__(self) -> None:
        self.reset()
        self._ended: set[OperationId] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: list[asyncio.Event] = []

    def reset(self) -> None:
        """Up and idle, and never spoken to."""
        self.woken = 0
        self.cancelled: list[OperationId] = []
        self.state = EnginePhase.UP
        self.detail = "idle"
        self.doing: Doing | None = None
        self.on_wake: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        return

    def wake(self) -> None:
        self.woken += 1
        self.on_wake()

    def cancel(self, operation_id: OperationId) -> None:
        self.cancelled.append(operation_id)

    def announce(self, operation_ids: Iterable[OperationId]) -> None:
        self._ended.update(operation_ids)
        for news in self._news:
            news.set()

    def announce_from_thread(self, operation_id: OperationId) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.announce, [operation_id])

    async def ended(self, operation_id: OperationId, timeout_s: float) -> bool:
        news = asyncio.Event()
        self._news.append(news)
        try:
            async with asyncio.timeout(timeout_s):
                while operation_id not in self._ended:
                    await news.wait()
                    news.clear()
        except TimeoutError:
            return False
        finally:
            self._news.remove(news)
        return True

    def health(self) -> EngineHealth:
        return EngineHealth(
            state=self.state, detail=self.detail, pid=1, capacity=CAPACITY, doing=self.doing
        )
