"""What transformers and peft compute from files, as the measure of what a server computes."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from mint.core.errors import ConfigError


def check_peft() -> None:
    """Raises: ConfigError: peft is not installed here."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"comparing an adapter needs peft ({error}): pip install peft, or leave the comparison "
            "out with --no-verify."
        ) from error


def logprobs(
    model: Path, prompts: Sequence[Sequence[int]], adapter: Path | None = None
) -> list[list[float]]:
    """Logprobs of each prompt's tokens after the first, in float32 on the CPU.

    Args:
        model: a model folder.
        adapter: a PEFT folder on top of it, loaded by peft itself.
    """
    logging.disable_progress_bar()
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        import peft

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a tied head under an adapter is what we want
            module = peft.PeftModel.from_pretrained(module, str(adapter))
    module.eval()
    return [_of(module, tokens) for tokens in prompts]


def _of(module: torch.nn.Module, tokens: Sequence[int]) -> list[float]:
    ids = torch.tensor([list(tokens)])
    with torch.no_grad():
        logits_TV = module(input_ids=ids).logits[0, :-1].float()
    picked = torch.log_softmax(logits_TV, dim=-1).gather(1, ids[0, 1:, None])
    return picked[:, 0].tolist()
