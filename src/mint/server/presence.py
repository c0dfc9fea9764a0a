"""How a running server tells that it is there: `server.json`, and the lines it prints."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mint.core.models import ServedModel
from mint.server.channel import EngineHealth
from mint.server.channel.cores import choose_threads
from mint.server.channel.engine_file import write_private
from mint.server.settings import ServerSettings

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def server_file(data: Path) -> Path:
    return data / "server.json"


def another_server_file(data: Path) -> Path:
    """The same for this process, beside one that has `server.json`."""
    return data / f"server-{os.getpid()}.json"


def write_presence(record: Path, host: str, port: int) -> str:
    """Write the file (whole, for its owner only); returns the URL for this machine."""
    host = _ANYWHERE.get(host, host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    told = {"url": url, "pid": os.getpid(), "started": datetime.now(UTC).isoformat()}
    write_private(record, json.dumps(told))
    return url


def banner(
    settings: ServerSettings,
    url: str,
    served: Sequence[ServedModel],
    key_file: Path | None,
    health: EngineHealth,
) -> list[str]:
    """What a person needs to know at start; never a secret."""
    names = ", ".join(model.name for model in served)
    others = "others by name on first use" if names else "any by name, found on first use"
    on_demand = others if settings.on_demand else ""
    where = sorted({f"{model.device}, {model.dtype}" for model in served})
    compute = "; ".join(where) or f"device {settings.device}, dtype {settings.dtype}"
    threads = choose_threads(settings.threads, os.environ)
    lines = [
        f"MinT is serving at {url}",
        f"  models   {'; '.join(part for part in (names, on_demand) if part)}",
        f"  engine   {compute}, {threads}, process {health.pid}",
        f"  data     {settings.data}",
    ]
    if settings.is_shared:
        lines.append(f"  database {settings.shown_database}")
    if settings.config is not None:
        lines.append(f"  settings {settings.config}, below flags and environment")
    if key_file is not None:
        lines += [
            f"  key      in {key_file}; clients of this machine:",
            f"           export MINT_BASE_URL={url} MINT_API_KEY=$(cat {key_file})",
        ]
    else:
        lines.append("  key      one from `mint keys create NAME`; `mint keys list` shows all")
    return lines
