"""What routes ask for: who is calling, the services, the body."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from pydantic import ValidationError

from mint.core.ids import Owner
from mint.server.auth.principal import Authenticator, Principal
from mint.server.http.errors import detail_of
from mint.server.service.checkpoints import CheckpointService
from mint.server.service.copies import CopyService
from mint.server.service.downloads import DownloadService
from mint.server.service.futures import FutureService
from mint.server.service.interpolation import InterpolationService
from mint.server.service.link import Link
from mint.server.service.models import ModelCatalog
from mint.server.service.sampling import SamplingService
from mint.server.service.sessions import SessionService
from mint.server.service.status import StatusService
from mint.server.service.training import TrainingService
from mint.server.service.transfer import TransferService
from mint.server.service.usage import UsageService
from mint.server.service.weights import WeightService
from mint.wire import json_models
from mint.wire.compression import collect, decompress
from mint.wire.errors import BodyError, BodyTooLargeError
from mint.wire.versions import SdkVersion, sdk_version

MAX_BODY_BYTES = 256 << 20
"""Largest request body, as sent and as unpacked: four times what we let a client put into one
request, since a single datum above that is sent alone."""

MAX_JSON_BYTES = 32 << 20
"""Largest JSON body, which becomes up to thirty times its size in objects: three times a request of
the SDKs that train in JSON (500,000 numbers)."""

PASSES_READ = 2
"""Bodies of passes read at the same time: each may be 256 MiB, and is there three times over."""

_READ_AT_ONCE_BYTES = 64 << 10
"""JSON below this is read in the event loop: handing it to a thread would take longer."""

BodyT = TypeVar("BodyT", bound=json_models.Body)


@dataclass(frozen=True)
class Services:
    """The house's use cases, as the app put them together."""

    authenticator: Authenticator
    link: Link
    catalog: ModelCatalog
    sessions: SessionService
    training: TrainingService
    weights: WeightService
    sampling: SamplingService
    futures: FutureService
    checkpoints: CheckpointService
    copies: CopyService
    downloads: DownloadService
    usage: UsageService
    status: StatusService
    transfer: TransferService
    interpolation: InterpolationService
    few_passes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PASSES_READ))
    """Held while the body of a pass is unpacked, read and queued."""


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def _principal(request: Request) -> Principal:
    """Who is calling.

    Raises:
        AuthenticationError: no key, or an unknown or revoked one.
    """
    header = request.headers.get("x-api-key") or request.headers.get("authorization")
    authenticator = services(request).authenticator
    return await asyncio.to_thread(authenticator.principal, header)


Who = Annotated[Principal, Depends(_principal)]


async def _caller(who: Who) -> Owner:
    """Whom the key acts for."""
    return who.owner


# Coroutines though they wait for nothing: plain functions would each be run in a thread.


async def _sdk(request: Request) -> SdkVersion | None:
    """Which SDK is calling; None: something else."""
    return sdk_version(request.headers.get("user-agent"))


async def _catalog(request: Request) -> ModelCatalog:
    return services(request).catalog


async def _sessions(request: Request) -> SessionService:
    return services(request).sessions


async def _training(request: Request) -> TrainingService:
    return services(request).training


async def _weights(request: Request) -> WeightService:
    return services(request).weights


async def _sampling(request: Request) -> SamplingService:
    return services(request).sampling


async def _futures(request: Request) -> FutureService:
    return services(request).futures


async def _checkpoints(request: Request) -> CheckpointService:
    return services(request).checkpoints


async def _transfer(request: Request) -> TransferService:
    return services(request).transfer


async def _interpolation(request: Request) -> InterpolationService:
    return services(request).interpolation


async def _copies(request: Request) -> CopyService:
    return services(request).copies


async def _downloads(request: Request) -> DownloadService:
    return services(request).downloads


async def _usage(request: Request) -> UsageService:
    return services(request).usage


async def _status(request: Request) -> StatusService:
    return services(request).status


Caller = Annotated[Owner, Depends(_caller)]
Sdk = Annotated[SdkVersion | None, Depends(_sdk)]
Catalog = Annotated[ModelCatalog, Depends(_catalog)]
Sessions = Annotated[SessionService, Depends(_sessions)]
Training = Annotated[TrainingService, Depends(_training)]
Weights = Annotated[WeightService, Depends(_weights)]
Sampling = Annotated[SamplingService, Depends(_sampling)]
Futures = Annotated[FutureService, Depends(_futures)]
Checkpoints = Annotated[CheckpointService, Depends(_checkpoints)]
Copies = Annotated[CopyService, Depends(_copies)]
Downloads = Annotated[DownloadService, Depends(_downloads)]
UsageOf = Annotated[UsageService, Depends(_usage)]
StatusOf = Annotated[StatusService, Depends(_status)]
Transfer = Annotated[TransferService, Depends(_transfer)]
Interpolation = Annotated[InterpolationService, Depends(_interpolation)]


async def read_body(request: Request, limit_bytes: int | None = None) -> bytes:
    """The whole body, uncompressed. Raises: as `receive_body` and `unpack_body`."""
    return await unpack_body(request, await receive_body(request, limit_bytes), limit_bytes)


async def receive_body(request: Request, limit_bytes: int | None = None) -> bytes:
    """The whole body as it was sent.

    Raises:
        BodyTooLargeError: above the limit (MAX_BODY_BYTES).
    """
    limit = MAX_BODY_BYTES if limit_bytes is None else limit_bytes
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > limit:
        raise BodyTooLargeError(
            f"the request body has {told} bytes; this server takes {limit}. Send fewer "
            "datums at a time."
        )
    return await collect(request.stream(), limit)


async def unpack_body(request: Request, sent: bytes, limit_bytes: int | None = None) -> bytes:
    """A received body, uncompressed.

    Raises:
        BodyTooLargeError: above the limit (MAX_BODY_BYTES) once unpacked.
        BodyError: damaged.
        EncodingError: in a Content-Encoding we do not speak.
    """
    limit = MAX_BODY_BYTES if limit_bytes is None else limit_bytes
    encoding = request.headers.get("content-encoding")
    if encoding is None:
        return sent
    return await asyncio.to_thread(decompress, sent, encoding, limit)


async def read(request: Request, model: type[BodyT]) -> BodyT:
    """The JSON body as one of our models.

    Raises:
        BodyError: it is no JSON, or a field is missing or of the wrong type; names the field.
    """
    body = await read_body(request, min(MAX_JSON_BYTES, MAX_BODY_BYTES))
    if len(body) < _READ_AT_ONCE_BYTES:
        return parse(model, body)
    return await asyncio.to_thread(parse, model, body)


def parse(model: type[BodyT], body: bytes) -> BodyT:
    """See `read`."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise BodyError(detail_of(error)) from error
