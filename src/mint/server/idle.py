"""Leaving when nobody has needed the server for a while."""

import asyncio
import time
from collections.abc import Callable

from fastapi import FastAPI

from mint.server.store.store import Store


async def leave_when_idle(
    app: FastAPI, store: Store, limit_s: float, leave: Callable[[], None]
) -> None:
    """Call `leave` once no request has come for `limit_s` and nothing waits or runs."""
    began = time.monotonic()
    while True:
        last = max(began, getattr(app.state, "last_request_at", began))
        left_s = last + limit_s - time.monotonic()
        if left_s <= 0 and not await asyncio.to_thread(has_work, store):
            return leave()
        # Work in progress is looked at again soon; a quiet server sleeps until it may leave.
        await asyncio.sleep(max(left_s, min(1.0, limit_s)))


def has_work(store: Store) -> bool:
    return bool(store.running() or store.pending(limit=1))
