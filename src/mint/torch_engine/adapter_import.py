"""An adapter that PEFT wrote -> a checkpoint of ours.

Our layout has whole groups of linears (attention, MLP, head), PEFT's has any set of modules. A
linear that the files leave out gets B = 0 and a fresh A: the function is the same, and training can
go on from it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mint.core.errors import ServerFaultError, UnsupportedError, UserError
from mint.core.lora import LoraSpec
from mint.core.operations import ImportAdapter, Imported
from mint.core.peft import ADAPTER_FILE, CONFIG_FILE, read_adapter_config
from mint.torch_engine import checkpoint
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights, Layout, Target, initial_weights
from mint.torch_engine.optim import AdamState

_PREFIX = "base_model.model."
_HEADER_BYTES = 4 << 20
"""More than the names of all tensors take in a safetensors file."""


def import_adapter(
    operation: ImportAdapter, decoder: Decoder, source: Path, folder: Path
) -> Imported:
    """Write the adapter in `source` as a checkpoint into `folder`.

    Raises:
        UnsupportedError: it is a LoRA of a kind that ours does not compute; names the field.
        UserError: its tensors do not fit the base model, or are not finite.
    """
    weights = read_adapter(source, decoder, operation.model_id)
    optimizer = _optimizer(source, weights.layout)
    files = checkpoint.save(folder, weights, operation.base_model, optimizer)
    return Imported(files=files, lora=weights.layout.spec, path=operation.path)


def read_adapter(source: Path, decoder: Decoder, model_id: str) -> AdapterWeights:
    """A PEFT folder as an adapter on this decoder. Raises as `import_adapter`."""
    config = read_adapter_config(_json(source / CONFIG_FILE))
    try:
        with safe_open(source / ADAPTER_FILE, framework="pt") as tensors:
            names: set[str] = set(tensors.keys())
            found = _targets(names, decoder)
            spec = LoraSpec(rank=config.rank, alpha=config.alpha, **_groups(found))
            layout = Layout.of(spec, decoder.targets)
            flat = initial_weights(layout, model_id=model_id)
            views = layout.views(flat)
            for target in found:
                for half, view in zip("AB", views[target.name], strict=True):
                    name = _name(target, half)
                    _check_shape(name, tensors, view)
                    view.copy_(tensors.get_tensor(name))
            for name, ours in _copies(decoder).items():
                if name in names:
                    _check_shape(name, tensors, ours)
                    _check_copy(name, tensors.get_tensor(name), ours)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{ADAPTER_FILE} is unreadable: {error}.") from error
    if not torch.isfinite(flat).all():
        raise UserError(f"{ADAPTER_FILE} holds values that are not finite.")
    return AdapterWeights(layout, flat.to(decoder.device))


def _targets(names: set[str], decoder: Decoder) -> list[Target]:
    """The linears that the files adapt, in the decoder's order."""
    known = {_name(target, half): target for target in decoder.targets for half in "AB"}
    copies = _copies(decoder)
    strange = sorted(names - set(known) - set(copies))
    if strange:
        raise UnsupportedError(
            f"{ADAPTER_FILE} holds {strange[0]} (one of {len(strange)}), which is no A or B of a "
            f"linear of this base model. Its linears are {', '.join(_leaves(decoder.targets))}."
        )
    found = [target for target in decoder.targets if _name(target, "A") in names]
    for target in decoder.targets:
        if (_name(target, "A") in names) != (_name(target, "B") in names):
            raise UserError(f"{ADAPTER_FILE} has only one of A and B of {target.name}.")
    if not found:
        raise UserError(f"{ADAPTER_FILE} holds no A and B of any linear of this base model.")
    return found


def _groups(found: list[Target]) -> dict[str, bool]:
    def has(**only: bool) -> bool:
        none = {"train_attn": False, "train_mlp": False, "train_unembed": False}
        spec = LoraSpec(**{**none, **only})
        return any(target.is_trained(spec) for target in found)

    names = ("train_attn", "train_mlp", "train_unembed")
    return {name: has(**{name: True}) for name in names}


def _copies(decoder: Decoder) -> Mapping[str, Tensor]:
    """Base weights that PEFT writes beside an adapter of the head, by name."""
    head, embedding = decoder.head_weight_VE, decoder.embedding_VE
    return {
        f"{_PREFIX}lm_head.base_layer.weight": head,
        f"{_PREFIX}lm_head.weight": head,
        f"{_PREFIX}model.embed_tokens.weight": embedding,
        f"{_PREFIX}model.embed_tokens.base_layer.weight": embedding,
    }


def _check_copy(name: str, tensor: Tensor, ours: Tensor) -> None:
    kept = min(tensor.dtype, ours.dtype, key=lambda dtype: dtype.itemsize)
    if not torch.equal(tensor.to(kept), ours.cpu().to(kept)):
        raise UnsupportedError(
            f"{ADAPTER_FILE} holds {name}, which differs from the base model's: it was trained "
            "too, or the adapter belongs to another base model."
        )


def _check_shape(name: str, tensors: Any, ours: Tensor) -> None:
    """Compare shapes by the file's header, before anything of the size it claims is read."""
    shape = tensors.get_slice(name).get_shape()
    if tuple(shape) != tuple(ours.shape):
        raise UserError(
            f"{ADAPTER_FILE}: {name} has shape {list(shape)}, but rank and base model ask for "
            f"{list(ours.shape)}. Is it an adapter of this base model?"
        )


def _optimizer(source: Path, layout: Layout) -> AdamState | None:
    """Adam's state where the files are a training checkpoint of a server of ours."""
    path = source / checkpoint.OPTIMIZER_FILE
    if not path.is_file():
        return None
    if path.stat().st_size > 8 * layout.size + _HEADER_BYTES:
        raise UserError(f"{path.name} is larger than two moments of each weight.")
    try:
        state = checkpoint.load_optimizer(source, layout)
    except ServerFaultError as error:
        raise UserError(str(error)) from error  # these files are the caller's
    except SafetensorError as error:
        raise UserError(f"{path.name} is unreadable: {error}.") from error
    if state is None or not _is_sane(state):
        raise UserError(f"{path.name} is no optimizer state that training could go on from.")
    return state


def _is_sane(state: AdamState) -> bool:
    return (
        isinstance(state.steps, int)
        and 0 <= state.steps < 2**53
        and bool(torch.isfinite(state.exp_avg).all())
        and bool(torch.isfinite(state.exp_avg_sq).all())
        and bool((state.exp_avg_sq >= 0).all())
    )


def _name(target: Target, half: str) -> str:
    return f"{_PREFIX}{target.name}.lora_{half}.weight"


def _leaves(targets: tuple[Target, ...]) -> list[str]:
    return list(dict.fromkeys(target.name.rpartition(".")[2] for target in targets))


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} is unreadable: {error}.") from error
    if not isinstance(value, Mapping):
        raise UserError(f"{path.name} must hold a JSON object.")
    return value
