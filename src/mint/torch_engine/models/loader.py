"""From a model's files to a module that computes, and its tokenizer."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from mint.core.errors import ConfigError
from mint.torch_engine.models.files import ModelFiles, check_whole, weight_files
from mint.torch_engine.models.support import check_supported

__all__ = ["check_supported", "load_module", "load_tokenizer", "torch_dtype"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a setting's name.

    Raises:
        ConfigError: none of float32, bfloat16, float16.
    """
    if name not in _DTYPES:
        raise ConfigError(f"dtype={name!r}: one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def load_module(
    files: ModelFiles,
    *,
    dtype: str | torch.dtype,
    device: str | torch.device,
    attention: str,
) -> PreTrainedModel:
    """Load the weights: in eval mode, without gradients, on `device`.

    Args:
        attention: a name in transformers' AttentionInterface; the engine registers its own there
            before it calls this.

    Raises:
        UnsupportedError: our attention would compute this model wrongly.
        ConfigError: a file or a weight is missing.
    """
    check_whole(files.folder)
    config = AutoConfig.from_pretrained(files.folder, local_files_only=True)
    check_supported(config, files.name)
    wanted = torch_dtype(dtype) if isinstance(dtype, str) else dtype
    # Not by from_pretrained: its way over the meta device imports torch's compiler, 2 s of a start.
    with no_init_weights():
        module: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=wanted, attn_implementation=attention
        )
    weights = _read_weights(files.folder, wanted, device)
    _check_shapes(files, module, weights)
    module.load_state_dict(weights, strict=False, assign=True)
    module.tie_weights()
    _check_complete(files, module, weights)
    return module.eval().requires_grad_(False).to(device)  # pyright: ignore[reportArgumentType]


def _read_weights(
    folder: Path, dtype: torch.dtype, device: str | torch.device
) -> dict[str, Tensor]:
    """The weights by name. On a CPU those of the right dtype stay in the file until they are used:
    the file is mapped into memory."""
    return {
        name: weight.to(dtype) if weight.is_floating_point() else weight
        for path in weight_files(folder)
        for name, weight in load_file(path, device=str(device)).items()
    }


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, for stop texts.

    Raises:
        ConfigError: tokenizer.json is missing.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; a model folder needs its tokenizer.json.")
    return Tokenizer.from_file(str(path))


def _check_shapes(files: ModelFiles, module: PreTrainedModel, weights: dict[str, Tensor]) -> None:
    wanted = {name: weight.shape for name, weight in module.state_dict().items()}
    _refuse(files, [n for n, w in weights.items() if n in wanted and w.shape != wanted[n]])


def _check_complete(files: ModelFiles, module: PreTrainedModel, weights: dict[str, Tensor]) -> None:
    """What no file has given holds whatever was in memory; here it is an error. Tied weights are
    given under one of their names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    given = {id(parameter) for name, parameter in named.items() if name in weights}
    _refuse(files, [name for name, parameter in named.items() if id(parameter) not in given])


def _refuse(files: ModelFiles, wrong: list[str]) -> None:
    if wrong:
        shown = ", ".join(sorted(wrong)[:5])
        raise ConfigError(
            f"The weights of {files.name} in {files.folder} do not fit its config.json: {shown}"
            f"{' and more' if len(wrong) > 5 else ''} missing or of another shape. Fetch the "
            "model's files again, all of one revision."
        )
