"""`engine.json`: where a data folder's engine process listens, for its owner's eyes only."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class EngineAddress:
    port: int
    token: str
    """Random; who knows it could read the file."""
    pid: int
    fingerprint: str
    """ServerSettings.engine_fingerprint() of the settings it was started with."""


def engine_file(data: Path) -> Path:
    return data / "engine.json"


def write_address(data: Path, address: EngineAddress) -> None:
    write_private(engine_file(data), json.dumps(asdict(address)))


def read_address(data: Path) -> EngineAddress | None:
    """None: there is no file, or not one of ours."""
    try:
        return EngineAddress(**json.loads(engine_file(data).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
