"""Checkpoints as files, by links that open for an hour and need no key."""

from email.utils import format_datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from mint.server.http.deps import Caller, Downloads
from mint.server.service import tarball

router = APIRouter()


@router.get("/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}/archive", status_code=302)
async def archive(
    model_id: str, kind: str, name: str, request: Request, caller: Caller, downloads: Downloads
) -> Response:
    """Lead to the tar of a checkpoint. A redirect, which SDKs from 0.6 on understand; JSON only
    those from 0.23 on would."""
    links = await downloads.whole(caller, f"tinker://{model_id}/{kind}/{name}")
    [token] = links.tokens.values()
    headers = {
        "Location": _url(request, token, f"{name}.tar"),
        "Expires": format_datetime(links.expires, usegmt=True),
    }
    return Response(status_code=302, headers=headers)


@router.get("/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}/external_weights_urls")
async def file_urls(
    model_id: str, kind: str, name: str, request: Request, caller: Caller, downloads: Downloads
) -> dict[str, Any]:
    """A link to each file of a checkpoint, whatever its kind."""
    links = await downloads.single(caller, f"tinker://{model_id}/{kind}/{name}")
    return {
        "urls": {file: _url(request, token, file) for file, token in links.tokens.items()},
        "expires": links.expires.isoformat(),
    }


@router.get("/download/{token}/{name}")
async def download(token: str, name: str, downloads: Downloads) -> Response:
    """What a link opens: one file, or all of them as a tar. The name is for people."""
    files = await downloads.open(token)
    if isinstance(files, Path):
        return FileResponse(files, media_type="application/octet-stream")
    return StreamingResponse(
        tarball.pieces_of(files),
        media_type="application/x-tar",
        headers={"Content-Length": str(tarball.size_of(files))},
    )


def _url(request: Request, token: str, name: str) -> str:
    """On the host and below the prefix that the request itself came by."""
    return str(request.url_for("download", token=token, name=name))
