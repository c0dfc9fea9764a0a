"""The files of a base model on this machine."""

from pathlib import Path

from mint.torch_engine.models.registry import ModelRegistry


def find_base(name: str, folder: Path | None = None) -> Path:
    """Where a base model lies: in `folder` if given, else where a server here would find it.

    Raises:
        UnknownModelError: it is not here; the message says where was looked.
        UnsupportedError, ConfigError: it is here, and cannot be used.
    """
    spec = f"{name}={folder}" if folder else name
    return ModelRegistry([spec]).resolve(name).folder
