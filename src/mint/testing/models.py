"""A tiny model on disk, in the form in which settings ask for a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mint.torch_engine.models.tiny import build_tiny


@dataclass(frozen=True)
class TinyModel:
    """A random model that `mint serve --model <spec>` would serve as `name`."""

    name: str
    folder: Path

    @property
    def spec(self) -> str:
        return f"{self.name}={self.folder}"


def tiny_model(tmp_path: Path, name: str = "tiny", **shape: Any) -> TinyModel:
    """Write a tiny model below `tmp_path`; `shape` is what `build_tiny` takes."""
    return TinyModel(name, build_tiny(tmp_path / name, **shape))
