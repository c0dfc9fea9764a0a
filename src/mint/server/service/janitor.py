"""What has to be tidied up as time passes."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from mint.server.service.checkpoints import remove_folders
from mint.server.service.sessions import SessionService
from mint.server.service.transfer import remove_stale
from mint.server.store.records import Session
from mint.server.store.store import Store

_log = logging.getLogger("mint.janitor")

ROUND_S = 60.0


class Janitor:
    """Ends silent sessions, forgets old results, removes expired checkpoints and forgotten uploads.

    Args:
        clock: gives the present time, zone-aware UTC.
    """

    def __init__(
        self,
        store: Store,
        sessions: SessionService,
        data: Path,
        *,
        session_timeout_s: float,
        result_retention_s: float,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._data = data
        self._session_timeout = timedelta(seconds=session_timeout_s)
        self._result_retention = timedelta(seconds=result_retention_s)
        self._clock = clock

    async def run(self) -> None:
        """Tidy up for ever; a failing round is logged and the next one tries again."""
        while True:
            try:
                await self.tidy()
            except Exception:
                _log.exception("tidying up failed; next try in %.0f s", ROUND_S)
            await asyncio.sleep(ROUND_S)

    async def tidy(self) -> None:
        """One round."""
        now = self._clock()
        for session in await asyncio.to_thread(self._silent, now - self._session_timeout):
            _log.info("session %s was silent for too long; ending it", session.session_id)
            await self._sessions.finish(
                session.owner, session.session_id, "expired", "no sign of life"
            )
        for session in await asyncio.to_thread(self._store.half_ended_sessions):
            # Its end was interrupted; the reason it was given stays.
            await self._sessions.finish(session.owner, session.session_id, "expired", None)
        await asyncio.to_thread(self._store.forget_old, now - self._result_retention)
        folders = await asyncio.to_thread(self._store.forget_expired)
        await asyncio.to_thread(remove_folders, self._data, folders)
        await asyncio.to_thread(remove_stale, self._data)

    def _silent(self, before: datetime) -> list[Session]:
        """Open sessions without a heartbeat and without work on their models."""
        return [
            session
            for session in self._store.silent_sessions(before)
            if all(
                model.last_request_at < before
                for model in self._store.session_objects(session.session_id)[0]
            )
        ]
