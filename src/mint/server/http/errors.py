"""Every error as an answer: one table of statuses, and why each.

The official client sends 408, 409, 429 and 5xx again, for minutes; everything else here reaches
the user at once. So a final answer is never one of those four.
"""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from mint.core.errors import (
    AuthenticationError,
    EngineLostError,
    Fault,
    MintError,
    NotFoundError,
    OverloadedError,
    StorageError,
    UserError,
)
from mint.server.service.sessions import SessionEndedError
from mint.wire.errors import BodyError, BodyTooLargeError, EncodingError

_log = logging.getLogger("mint.http")


class LostFutureError(NotFoundError):
    """A result that is gone, of a request the client may simply send again."""


STATUSES: Mapping[type[BaseException], int] = {
    AuthenticationError: 401,
    # Heartbeats stop at 410, and a lost sample is sent again at 410.
    SessionEndedError: 410,
    LostFutureError: 410,
    NotFoundError: 404,
    BodyTooLargeError: 413,
    EncodingError: 415,
    BodyError: 400,
    UserError: 400,
    # The client waits and comes back; sampling clients slow down too.
    OverloadedError: 429,
    # The same request may succeed once the engine is back.
    EngineLostError: 503,
    # A disk is given room, a database is started again.
    StorageError: 503,
    MintError: 500,
}
"""The most specific class decides. Anything else is a bug of ours: 500, with an incident id."""

CATEGORIES: Mapping[Fault, str] = {
    Fault.USER: "user",
    Fault.SERVER: "server",
    Fault.CANCELLED: "unknown",  # the wire has no word for it
}
"""`category` of a failed result."""


def status_of(error: BaseException) -> int:
    """The HTTP status for an error."""
    return next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 500)


def detail_of(error: ValidationError | RequestValidationError) -> str:
    """What is wrong with which field, as one line of text."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
        for problem in error.errors()[:5]
    )


def answer(status: int, detail: str) -> JSONResponse:
    """Never an empty body: the client takes an empty 400 for a broken proxy and tries again."""
    return JSONResponse({"detail": detail}, status_code=status)


def incident(request: Request, error: BaseException) -> str:
    """Log an unexpected error under a fresh id, and say where to find it."""
    number = uuid.uuid4().hex[:12]
    _log.error(
        "incident %s: %s %s failed", number, request.method, request.url.path, exc_info=error
    )
    return f"internal error (incident {number}); the server's log tells more under that id."


def install(app: FastAPI) -> None:
    """Turn whatever a route raises into an answer."""

    @app.exception_handler(MintError)
    async def known(request: Request, error: MintError) -> JSONResponse:
        status = status_of(error)
        if status == 500 or isinstance(error, StorageError):
            _log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
        return answer(status, str(error))

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(400, detail_of(error))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        return answer(500, incident(request, error))


def failure(message: str, fault: Fault) -> dict[str, Any]:
    """A failed result, as the SDK reads it."""
    return {"error": message, "category": CATEGORIES[fault]}
