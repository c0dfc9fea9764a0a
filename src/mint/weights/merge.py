"""Base model + adapter -> a model folder that needs neither.

    W' = W + (alpha / rank) B A

One weight file at a time, so the memory needed is that of the largest file. A head that shares the
embedding's weights is given weights of its own if the adapter extends it.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from mint.core.errors import ConfigError, UserError
from mint.core.peft import ADAPTER_FILE, CONFIG_FILE, read_adapter_config

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_PREFIX = "base_model.model."
_INDEX = "model.safetensors.index.json"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Delta:
    """What an adapter adds to one weight, as its two factors."""

    a_RI: Tensor
    b_OR: Tensor
    scale: float

    def added_to(self, weight_OI: Tensor) -> Tensor:
        """Raises: UserError: it does not fit the weight."""
        if (self.b_OR.shape[0], self.a_RI.shape[1]) != tuple(weight_OI.shape):
            raise UserError(
                f"the adapter is for a weight of {self.b_OR.shape[0]} by {self.a_RI.shape[1]}, the "
                f"base model's has {list(weight_OI.shape)}. Is it the right base model?"
            )
        return weight_OI.float() + self.scale * (self.b_OR @ self.a_RI)


def merge(base: Path, adapter: Path, out: Path, dtype: torch.dtype | None = None) -> None:
    """Write the merged model into the existing folder `out`.

    Args:
        dtype: of the weights that are written; None: of the base model's files.

    Raises:
        UserError: the adapter does not fit the base model, or is of a kind that cannot be merged.
        ConfigError: the base model's folder has no weights.
    """
    deltas = read_deltas(adapter)
    unties = _HEAD in deltas and _is_tied(base)
    files = sorted(base.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"{base} has no safetensors.")
    merged: set[str] = set()
    for file in files:
        written = {}
        for name, tensor in _tensors(file):
            if unties and name == _HEAD:
                continue  # a copy of the embedding; the head is made from that
            written[name] = _cast(deltas[name].added_to(tensor) if name in deltas else tensor,
                                  tensor, dtype)  # fmt: skip
            if unties and name == _EMBEDDING:
                written[_HEAD] = _cast(deltas[_HEAD].added_to(tensor), tensor, dtype)
        merged |= written.keys() & deltas.keys()
        save_file(written, out / file.name, {"format": "pt"})
    if missing := sorted(set(deltas) - merged):
        raise UserError(
            f"the base model in {base} has no {missing[0]}, which the adapter extends. Is it the "
            "right base model?"
        )
    _copy_the_rest(base, out, unties=unties, dtype=dtype)


def read_deltas(adapter: Path) -> dict[str, Delta]:
    """What an adapter adds, by the name of the weight.

    Raises:
        UserError: it is unreadable, or a LoRA of a kind that is more than W + B A.
    """
    try:
        config = read_adapter_config(json.loads((adapter / CONFIG_FILE).read_text()))
        tensors = dict(_tensors(adapter / ADAPTER_FILE))
    except (OSError, ValueError) as error:
        raise UserError(f"{adapter} is no PEFT adapter: {error}.") from error
    scale = config.alpha / config.rank
    deltas = {}
    for name, a_RI in tensors.items():
        stem, half, _ = name.rpartition(".lora_A.weight")
        if not half:
            continue
        b_OR = tensors.get(f"{stem}.lora_B.weight")
        if b_OR is None:
            raise UserError(f"{adapter / ADAPTER_FILE} has no B for {name}.")
        deltas[f"{stem.removeprefix(_PREFIX)}.weight"] = Delta(a_RI.float(), b_OR.float(), scale)
    return deltas


def dtypes_of(folder: Path) -> list[str]:
    """The dtypes of a model folder's weights, as `DTYPES` names them."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    found = {tensor.dtype for file in folder.glob("*.safetensors") for _, tensor in _tensors(file)}
    return sorted(names.get(dtype, str(dtype)) for dtype in found)


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 (not a mapping)
            yield name, tensors.get_tensor(name)


def _cast(value: Tensor, original: Tensor, dtype: torch.dtype | None) -> Tensor:
    return value.to(dtype or original.dtype).contiguous()


def _is_tied(base: Path) -> bool:
    return bool(_json(base / "config.json").get("tie_word_embeddings", False))


def _copy_the_rest(base: Path, out: Path, *, unties: bool, dtype: torch.dtype | None) -> None:
    """Everything of the folder but its weights; config and index as the new weights ask for."""
    for path in sorted(base.iterdir()):
        if path.is_file() and path.suffix not in (".safetensors", ".bin", ".pt", ".gguf"):
            shutil.copyfile(path, out / path.name)
    config = _json(out / "config.json")
    if unties:
        config["tie_word_embeddings"] = False
    if dtype is not None:
        for field in ("torch_dtype", "dtype"):
            if field in config:
                config[field] = str(dtype).removeprefix("torch.")
    (out / "config.json").write_text(json.dumps(config, indent=2))
    if (out / _INDEX).is_file():
        (out / _INDEX).write_text(json.dumps(_index(out), indent=2))


def _index(out: Path) -> dict[str, Any]:
    where, total = {}, 0
    for file in sorted(out.glob("*.safetensors")):
        for name, tensor in _tensors(file):
            where[name] = file.name
            total += tensor.numel() * tensor.element_size()
    return {"metadata": {"total_size": total}, "weight_map": where}


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
