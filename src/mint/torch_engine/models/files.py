"""ModelFiles: a base model as a folder, and what its headers tell without loading a weight."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from mint.core.errors import ConfigError

_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ModelFiles:
    """Where one base model lies.

    Attributes:
        name: as it was asked for.
        folder: holds config.json, safetensors, tokenizer.json and tokenizer_config.json.
        origin: how it was found: "folder", "embedded", "hub cache" or "hub".
    """

    name: str
    folder: Path
    origin: str


def is_model_folder(folder: Path) -> bool:
    """Whether a model could be meant by this path at all."""
    return (folder / "config.json").is_file()


def missing_parts(folder: Path) -> list[str]:
    """What of a model is not there, each with the way to get it; empty when it is whole."""
    hints = {
        "config.json": "config.json",
        "tokenizer.json": "tokenizer.json (AutoTokenizer.from_pretrained(…).save_pretrained() "
        "writes one)",
        "tokenizer_config.json": "tokenizer_config.json",
    }
    missing = [hint for name, hint in hints.items() if not (folder / name).is_file()]
    weights = weight_files(folder)
    if not weights:
        missing.append(
            f"{_WEIGHTS} or {_INDEX} (weights are read from safetensors only; "
            "AutoModelForCausalLM.from_pretrained(…).save_pretrained() writes them)"
        )
    return missing + [path.name for path in weights if not path.is_file()]


def check_whole(folder: Path) -> None:
    """Refuse a folder that lacks a part of a model.

    Raises:
        ConfigError: names every missing file.
    """
    if missing := missing_parts(folder):
        raise ConfigError(f"The model folder {folder} lacks {'; '.join(missing)}.")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the weights: one, or the shards of an index."""
    index = folder / _INDEX
    if index.is_file():
        names: dict[str, str] = _read_json(index).get("weight_map", {})
        return [folder / name for name in sorted(set(names.values()))]
    whole = folder / _WEIGHTS
    return [whole] if whole.is_file() else []


def read_config(folder: Path) -> dict[str, Any]:
    """config.json as it stands.

    Raises:
        ConfigError: missing, or not a JSON object.
    """
    return _read_json(folder / "config.json")


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end a turn, ascending: of generation_config.json and config.json together.

    Chat models often name only one end token in config.json and the whole set in the other file.
    """
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            ids = _read_json(folder / name).get("eos_token_id")
            found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return tuple(sorted(found))


def count_parameters(folder: Path) -> int:
    """Parameters of the model, from the headers of its weight files. A tied head counts once."""
    tied = bool(read_config(folder).get("tie_word_embeddings", False))
    return sum(
        math.prod(shape)
        for name, shape in _tensor_shapes(folder)
        if not (tied and name == "lm_head.weight") and not name.endswith("rotary_emb.inv_freq")
    )


def _tensor_shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    for path in weight_files(folder):
        with safe_open(path, framework="numpy") as weights:
            for name in weights.keys():  # noqa: SIM118 (not a mapping)
                yield name, weights.get_slice(name).get_shape()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist.") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object.")
    return value
