"""Adapters and optimizer state <-> files.

A checkpoint is a folder:
    adapter_model.safetensors   A and B under PEFT's names, float32
    adapter_config.json         PEFT's LoraConfig, so peft and vLLM load the folder as it is
    optimizer.safetensors       Adam's moments per weight (training checkpoints only)
    manifest.json               base model, LoRA shape, versions, and a sha256 of each file

It is written beside its place and renamed, so a folder with the final name is always whole.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from mint.core.errors import ServerFaultError, UserError
from mint.core.lora import LoraSpec
from mint.core.peft import ADAPTER_FILE, CONFIG_FILE
from mint.torch_engine.lora import AdapterWeights, Layout
from mint.torch_engine.optim import AdamState

FORMAT = 1
OPTIMIZER_FILE = "optimizer.safetensors"
_MANIFEST = "manifest.json"
Files = Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says of itself before its tensors are read."""

    base_model: str
    lora: LoraSpec
    weights_version: int
    optimizer_steps: int | None
    """None: the checkpoint has no optimizer state."""
    files: Files


def save(
    folder: Path, weights: AdapterWeights, base_model: str, optimizer: AdamState | None
) -> Files:
    """Write a checkpoint and return (size, sha256) of each of its files.

    Raises:
        ServerFaultError: the disk refuses; nothing of the folder is left then.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        layout = weights.layout
        save_file(_named(layout, weights.flat, _peft_name), beside / ADAPTER_FILE)
        (beside / CONFIG_FILE).write_text(json.dumps(_peft_config(layout, base_model), indent=2))
        if optimizer:
            moments = {
                f"{moment}.{name}": tensor
                for moment in ("exp_avg", "exp_avg_sq")
                for name, tensor in _named(layout, getattr(optimizer, moment), _peft_name).items()
            }
            save_file(moments, beside / OPTIMIZER_FILE)
        files = {path.name: _stamp(path) for path in sorted(beside.iterdir())}
        manifest = {
            "format": FORMAT,
            "base_model": base_model,
            "lora": asdict(layout.spec),
            "weights_version": weights.version,
            "optimizer_steps": optimizer.steps if optimizer else None,
            "files": files,
        }
        (beside / _MANIFEST).write_text(json.dumps(manifest, indent=2))
        for path in beside.iterdir():
            _sync(path)
        beside.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:  # the latter is no OSError, even for a full disk
        shutil.rmtree(beside, ignore_errors=True)
        raise ServerFaultError(f"checkpoint {folder.name} could not be written: {error}") from error
    return {**files, _MANIFEST: _stamp(folder / _MANIFEST)}


def read_manifest(folder: Path) -> Manifest:
    """Read what a checkpoint says of itself.

    Raises:
        ServerFaultError: the folder or its manifest is missing or unreadable.
    """
    try:
        found = json.loads((folder / _MANIFEST).read_text())
        return Manifest(
            found["base_model"],
            LoraSpec(**found["lora"]),
            found["weights_version"],
            found["optimizer_steps"],
            {name: (size, digest) for name, (size, digest) in found["files"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServerFaultError(f"checkpoint folder {folder} is unreadable: {error!r}") from error


def load_weights(folder: Path, layout: Layout, device: torch.device | str = "cpu") -> Tensor:
    """The checkpoint's adapter as flat memory of `layout`.

    Raises:
        ServerFaultError: a file is missing or damaged.
        UserError: its tensors do not fit the layout.
    """
    return _flat(_verified(folder, ADAPTER_FILE), layout, _peft_name).to(device)


class MappedPairs(Mapping[str, tuple[Tensor, Tensor]]):
    """A checkpoint's (A `[R, in]`, B `[out, R]`) by target, float32, each read when it is asked for.

    Raises as load_weights does, when made.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._targets = {target.name: target for target in layout.targets}
        self._file = safe_open(_checked(folder, ADAPTER_FILE), framework="pt")
        shapes = {name: self._file.get_slice(name).get_shape() for name in self._file.keys()}  # noqa: SIM118 (no mapping)
        wanted = {
            _peft_name(target.name, half): shape
            for target in layout.targets
            for half, shape in (
                ("A", [layout.spec.rank, target.in_features]),
                ("B", [target.out_features, layout.spec.rank]),
            )
        }
        _refuse_other_shapes(shapes, wanted)
        _refuse_extra(shapes, wanted)

    def __getitem__(self, target: str) -> tuple[Tensor, Tensor]:
        if target not in self._targets:
            raise KeyError(target)
        a, b = (self._file.get_tensor(_peft_name(target, half)) for half in "AB")
        return a, b

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


def load_optimizer(
    folder: Path, layout: Layout, device: torch.device | str = "cpu"
) -> AdamState | None:
    """The checkpoint's Adam state, None if it has none. Raises as load_weights does."""
    steps = read_manifest(folder).optimizer_steps
    if steps is None:
        return None
    tensors = _verified(folder, OPTIMIZER_FILE)
    moments = [
        _flat(tensors, layout, lambda *key, m=moment: f"{m}.{_peft_name(*key)}").to(device)
        for moment in ("exp_avg", "exp_avg_sq")
    ]
    return AdamState(moments[0], moments[1], steps)


def _peft_name(target: str, half: str) -> str:
    return f"base_model.model.{target}.lora_{half}.weight"


def _named(layout: Layout, flat: Tensor, name_of) -> dict[str, Tensor]:
    return {
        name_of(target, half): tensor.detach().cpu().contiguous()
        for target, pair in layout.views(flat).items()
        for half, tensor in zip("AB", pair, strict=True)
    }


def _flat(tensors: Mapping[str, Tensor], layout: Layout, name_of) -> Tensor:
    flat = torch.empty(layout.size)
    wanted = {
        name_of(target, half): view
        for target, pair in layout.views(flat).items()
        for half, view in zip("AB", pair, strict=True)
    }
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    _refuse_other_shapes(shapes, {name: list(view.shape) for name, view in wanted.items()})
    if name_of is _peft_name:
        _refuse_extra(shapes, wanted)
    for name, view in wanted.items():
        view.copy_(tensors[name])
    return flat


def _refuse_other_shapes(
    found: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]]
) -> None:
    for name, shape in wanted.items():
        if found.get(name) != shape:
            got = f"shape {list(found[name])}" if name in found else "nothing"
            raise UserError(
                f"the checkpoint has {got} for {name}, this adapter needs {list(shape)}. "
                "Create the model with the checkpoint's rank and train_* settings, or from the "
                "checkpoint itself."
            )


def _refuse_extra(found: Collection[str], wanted: Collection[str]) -> None:
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise UserError(
            f"the checkpoint also holds {extra[0]} ({len(extra)} tensors in all) which this "
            "adapter does not train. Create the model from the checkpoint itself."
        )


def _peft_config(layout: Layout, base_model: str) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": layout.spec.rank,
        "lora_alpha": int(alpha) if (alpha := layout.spec.alpha).is_integer() else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({t.name.rpartition(".")[2] for t in layout.targets}),
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "modules_to_save": None,
    }


def _verified(folder: Path, name: str) -> dict[str, Tensor]:
    return load_file(_checked(folder, name))


def _checked(folder: Path, name: str) -> Path:
    """One file, once its bytes are those the manifest has signed for."""
    want = read_manifest(folder).files.get(name)
    try:
        got = _stamp(folder / name)
    except OSError as error:
        raise ServerFaultError(f"checkpoint file {folder / name} is unreadable: {error}") from error
    if want is None or got != tuple(want):
        raise ServerFaultError(
            f"checkpoint file {folder / name} is damaged: its size or sha256 is not the one "
            f"written ({got} instead of {want}). Use another checkpoint."
        )
    return folder / name


def _stamp(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.stat().st_size, digest


def _sync(path: Path) -> None:
    """Have the disk hold what was written before a name points to it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
