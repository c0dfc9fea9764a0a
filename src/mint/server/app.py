"""Puts the API process together: services over the store and the link, routes over the services."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from mint.server.auth.principal import Authenticator
from mint.server.auth.signing import Signer, signing_secret
from mint.server.channel import EngineLink
from mint.server.http import (
    account,
    client,
    downloads,
    errors,
    extensions,
    futures,
    health,
    metrics,
    models,
    runs,
    sampling,
    sessions,
    status,
    training,
    transfer,
    weights,
)
from mint.server.http.deps import Services
from mint.server.service.checkpoints import CheckpointService
from mint.server.service.copies import CopyService
from mint.server.service.downloads import DownloadService
from mint.server.service.futures import FutureService
from mint.server.service.interpolation import InterpolationService
from mint.server.service.janitor import Janitor
from mint.server.service.link import Link
from mint.server.service.model_queue import ModelQueue
from mint.server.service.models import ModelCatalog
from mint.server.service.sampling import SamplingService
from mint.server.service.sessions import SessionService
from mint.server.service.status import StatusService
from mint.server.service.submission import Submissions
from mint.server.service.training import TrainingService
from mint.server.service.transfer import TransferService, remove_unfinished
from mint.server.service.usage import UsageService
from mint.server.service.weights import WeightService
from mint.server.settings import ServerSettings
from mint.server.store.database import utcnow
from mint.server.store.store import Store

ROUTERS = (
    client.router,
    account.router,
    downloads.router,
    sessions.router,
    models.router,
    training.router,
    weights.router,
    sampling.router,
    futures.router,
    runs.router,
    extensions.router,
    transfer.router,
    status.router,
    metrics.router,
    health.router,
    health.fallback,  # last: it answers whatever the others do not
)
_BUSIEST = (futures.router, sampling.router, training.router)
"""Routers are asked one after the other, so these are asked first."""


class NoteRequests:
    """Notes when something last happened, for the server that leaves when idle.

    A poll that is held counts at its end too, so that waiting is not idleness.
    """

    def __init__(self, app: ASGIApp, note: FastAPI) -> None:
        self._app = app
        self._note = note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whoever reads figures every few seconds needs them, not the server.
        if scope["type"] != "http" or scope["path"] == "/metrics":
            await self._app(scope, receive, send)
            return
        self._note.state.last_request_at = time.monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._note.state.last_request_at = time.monotonic()


def create_app(settings: ServerSettings, store: Store, link: EngineLink) -> FastAPI:
    """The API as an ASGI application; starting it starts the link, ending it closes the link."""
    services = build_services(settings, store, link)
    janitor = Janitor(
        store,
        services.sessions,
        settings.data,
        session_timeout_s=settings.session_timeout_s,
        result_retention_s=settings.result_retention_s,
        clock=utcnow,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(remove_unfinished, settings.data)
        await link.start()
        tidying = asyncio.create_task(janitor.run(), name="janitor")
        try:
            yield
        finally:
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying
            await link.close()

    # No pages that describe the API: they would be the only ones without a key.
    app = FastAPI(title="MinT", lifespan=lifespan, openapi_url=None)
    app.state.services = services
    app.state.last_request_at = time.monotonic()
    app.state.request_figures = metrics.RequestFigures()
    app.add_middleware(metrics.CountRequests, figures=app.state.request_figures)
    app.add_middleware(NoteRequests, note=app)
    errors.install(app)
    for router in sorted(ROUTERS, key=lambda router: router not in _BUSIEST):
        app.include_router(router)
    return app


def build_services(settings: ServerSettings, store: Store, link: Link) -> Services:
    """Connect the use cases with each other."""
    submissions = Submissions(store, link)
    catalog = ModelCatalog(store, link, submissions, on_demand=settings.on_demand)
    queue = ModelQueue(store, submissions)
    signer = Signer(signing_secret(settings.data / "links.secret"), utcnow)
    return Services(
        authenticator=Authenticator(store),
        link=link,
        catalog=catalog,
        sessions=SessionService(store, link),
        training=TrainingService(store, queue, catalog),
        weights=WeightService(store, queue, catalog),
        sampling=SamplingService(
            store, submissions, catalog, max_pending=settings.max_pending_samples
        ),
        futures=FutureService(store, link, utcnow),
        checkpoints=CheckpointService(store, settings.data, utcnow),
        copies=CopyService(store, settings.data, utcnow),
        downloads=DownloadService(store, settings.data, signer, utcnow),
        usage=UsageService(store),
        status=StatusService(store, link),
        transfer=TransferService(store, submissions, catalog, settings.data),
        interpolation=InterpolationService(store, submissions, catalog),
    )
