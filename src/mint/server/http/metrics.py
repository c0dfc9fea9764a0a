"""`/metrics` in Prometheus' text format.

Read freely from the server's own machine, and from elsewhere with an admin's key; what a proxy
brings comes from elsewhere. Names of owners are told to admins only, secrets and texts to nobody.
"""

import asyncio
import ipaddress
import time
from collections.abc import Iterable, Iterator

import psutil
from fastapi import APIRouter, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mint.core.errors import NotFoundError
from mint.server.auth.principal import Principal
from mint.server.http.deps import StatusOf, services
from mint.server.service.status import Figures
from mint.server.store.records import OperationStatus, Usage

router = APIRouter()

_FROM_ELSEWHERE = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers that only a proxy sends: then the address is the proxy's and says nothing."""
_LATENCIES_S = (0.005, 0.02, 0.1, 0.5, 2, 10, 40)
"""Most answers take milliseconds; polls are held for up to 30 s."""
_TOKENS = ("trained", "prompt", "sampled")


class RequestFigures:
    """Counts the requests of one API process, by route; an ASGI layer around the app."""

    def __init__(self) -> None:
        disable_created_metrics()  # one more series for each, which nobody asks for
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "mint_http_requests", "Requests answered.", ("method", "route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self._latency = Histogram(
            "mint_http_request_seconds", "From a request to the end of its answer.",
            ("method", "route"), buckets=_LATENCIES_S, registry=self.registry,
        )  # fmt: skip

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, note)
        finally:
            # The template, never the path: paths have no end, and ids in them.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" else "other"
            self._requests.labels(method, route, status).inc()
            self._latency.labels(method, route).observe(time.monotonic() - began)


class CountRequests:
    """The layer as Starlette wants it."""

    def __init__(self, app: ASGIApp, figures: RequestFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._figures.run(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)


@router.get("/metrics")
async def metrics(request: Request, status: StatusOf) -> Response:
    """Everything that is counted."""
    admin = await _admin(request)
    if admin is None and not _is_from_here(request):
        raise NotFoundError("metrics are read on the server's own machine, or with an admin's key.")
    figures = await status.figures()
    now = CollectorRegistry()
    now.register(_Snapshot(figures, with_owners=admin is not None))
    requests: RequestFigures = request.app.state.request_figures
    text = generate_latest(now) + generate_latest(requests.registry)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _admin(request: Request) -> Principal | None:
    """The caller, if a key was sent and it is an admin's.

    Raises:
        AuthenticationError: the key is unknown or revoked.
    """
    header = request.headers.get("x-api-key") or request.headers.get("authorization")
    if header is None:
        return None
    who = await asyncio.to_thread(services(request).authenticator.principal, header)
    return who if who.is_admin else None


def _is_from_here(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in _FROM_ELSEWHERE):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


class _Snapshot(Collector):
    """Figures as metrics."""

    def __init__(self, figures: Figures, *, with_owners: bool) -> None:
        self._figures = figures
        self._with_owners = with_owners

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield from _engine(figures)
        yield from _work(figures)
        yield from _usage(figures.usage, ())
        if self._with_owners:
            yield from _usage(figures.usage, ("owner",))
        memory = GaugeMetricFamily(
            "mint_process_resident_bytes", "Memory of the process.", labels=["process"]
        )
        memory.add_metric(["api"], psutil.Process().memory_info().rss)
        if (engine := _resident_bytes(figures.engine.pid)) is not None:
            memory.add_metric(["engine"], engine)
        yield memory


def _engine(figures: Figures) -> Iterator[Metric]:
    health = figures.engine
    yield _gauge("mint_engine_up", "1 if the engine process works.", float(health.state == "up"))
    capacity = health.capacity or {}
    if capacity:
        compute = {name: str(capacity[name]) for name in ("device", "dtype", "threads")}
        yield InfoMetricFamily("mint_engine", "What the engine computes on.", value=compute)
    for name, about in (
        ("running_sequences", "Sequences being decoded."),
        ("waiting_sequences", "Accepted sequences that have no room in the KV cache now."),
        ("max_sequences", "Most sequences decoded side by side."),
        ("cached_tokens", "Tokens whose KV is kept for prompts that begin alike."),
        ("adapters", "Adapters in memory."),
        ("memory_bytes", "Weights, adapters, optimizer state and KV cache, as accounted."),
        ("memory_limit_bytes", "What the engine may hold."),
    ):
        if name in capacity:
            yield _gauge(f"mint_engine_{name}", about, float(capacity[name]))
    for name, about in (
        ("prompt_tokens", "Tokens of prompts to be sampled from."),
        ("reused_prompt_tokens", "Those of them whose KV was there already."),
        ("sequences_set_back", "Times a sequence gave its room up to older ones."),
    ):
        if name in capacity:
            yield CounterMetricFamily(f"mint_engine_{name}", about, value=float(capacity[name]))
    if "busy_s" in capacity:
        yield CounterMetricFamily(
            "mint_engine_busy_seconds", "Time spent computing, since the engine process started.",
            value=float(capacity["busy_s"]),
        )  # fmt: skip
    loaded = GaugeMetricFamily(
        "mint_engine_loaded_model", "1 for each base model in memory.", labels=["base_model"]
    )
    for name in capacity.get("loaded_models", ()):
        loaded.add_metric([name], 1)
    yield loaded


def _work(figures: Figures) -> Iterator[Metric]:
    remembered = GaugeMetricFamily(
        "mint_operations", "Operations in the store; ended ones stay for result_retention_s.",
        labels=["kind", "status"],
    )  # fmt: skip
    for count in figures.operations:
        remembered.add_metric([count.kind, count.status.value], count.count)
    yield remembered
    waiting = [line for line in figures.queue if line.status is OperationStatus.PENDING]
    yield _gauge(
        "mint_queue_depth", "Operations that wait.", float(sum(line.count for line in waiting))
    )
    oldest = min((line.oldest_at for line in waiting), default=None)
    age_s = 0.0 if oldest is None else max(0.0, time.time() - oldest.timestamp())
    yield _gauge("mint_queue_oldest_seconds", "Age of the oldest operation that waits.", age_s)
    yield _gauge("mint_open_sessions", "Sessions that have not ended.", figures.open_sessions)
    yield _gauge("mint_models", "Models in memory, or on their way there.", figures.models)


def _usage(usage: Iterable[Usage], labels: tuple[str, ...]) -> Iterator[Metric]:
    """Totals since the database was made; by owner if asked for, under names of their own, so that
    a sum over one name counts nothing twice."""
    prefix = "mint_owner" if labels else "mint"
    ended = CounterMetricFamily(
        f"{prefix}_operations_ended", "Operations that ended.", labels=[*labels, "outcome"]
    )
    tokens = CounterMetricFamily(f"{prefix}_tokens", "Tokens computed.", labels=[*labels, "use"])
    whose = sorted({row.owner if labels else "" for row in usage}) or ([] if labels else [""])
    for owner in whose:
        rows = [row for row in usage if not labels or row.owner == owner]
        label = [owner] if labels else []
        failed = sum(row.failed for row in rows)
        ended.add_metric([*label, "done"], sum(row.operations for row in rows) - failed)
        ended.add_metric([*label, "failed"], failed)
        for use in _TOKENS:
            tokens.add_metric([*label, use], sum(getattr(row, f"{use}_tokens") for row in rows))
    yield ended
    yield tokens


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _resident_bytes(pid: int | None) -> int | None:
    try:
        return psutil.Process(pid).memory_info().rss if pid is not None else None
    except psutil.Error:
        return None
