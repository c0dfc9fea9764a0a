"""From a model's files to a module that computes, and its tokenizer."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from mint.core.errors import ConfigError
from mint.torch_engine.models.files import ModelFiles, check_whole
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
    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a bar per load would tear the server's log apart
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            config=config,
            dtype=torch_dtype(dtype) if isinstance(dtype, str) else dtype,
            attn_implementation=attention,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,  # makes it a pair
        )
    finally:
        if bar:
            logging.enable_progress_bar()
    module, report = loaded
    _check_complete(files, report)
    return module.eval().requires_grad_(False).to(device)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, for stop texts.

    Raises:
        ConfigError: tokenizer.json is missing.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; a model folder needs its tokenizer.json.")
    return Tokenizer.from_file(str(path))


def _check_complete(files: ModelFiles, report: dict[str, set]) -> None:
    """transformers fills what is missing with random numbers and warns; here it is an error."""
    wrong = [*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])]
    if wrong:
        shown = ", ".join(sorted(wrong)[:5])
        raise ConfigError(
            f"The weights of {files.name} in {files.folder} do not fit its config.json: {shown}"
            f"{' and more' if len(wrong) > 5 else ''} missing or of another shape. Fetch the "
            "model's files again, all of one revision."
        )
