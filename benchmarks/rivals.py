"""transformers with peft, as a user writes it by hand: the rival of every ratio.

Training pads at the right and asks for logits only where answers are; sampling is generate() over
the whole batch, padded at the left, with the log-probabilities of what was drawn, since an RL step
needs them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from benchmarks.workloads import SAMPLED_LOGPROB, Answer
from mint.torch_engine.models.registry import ModelRegistry

logging.disable_progress_bar()

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""All linears of attention and MLP, which is peft's "all-linear" for the models used here."""
PAD = 0


def model_folder(model: str) -> Path:
    """Where the files of a base model lie, NAME or NAME=FOLDER."""
    return ModelRegistry((model,)).resolve(model.partition("=")[0]).folder


def vocabulary(model: str) -> int:
    """Number of ids."""
    return int(json.loads((model_folder(model) / "config.json").read_text())["vocab_size"])


def load_peft(model: str, *, rank: int, dtype: str = "float32", adapter: Path | None = None) -> Any:
    """The base model with a new adapter, or with the one in the folder `adapter`."""
    base: Any = AutoModelForCausalLM.from_pretrained(
        model_folder(model), dtype=getattr(torch, dtype), local_files_only=True
    )
    for config in (base.config, base.generation_config):
        config.eos_token_id = None  # no sequence ends early: all systems draw as many tokens
        config.pad_token_id = PAD
    if adapter:
        return PeftModel.from_pretrained(base, adapter, is_trainable=True)
    return get_peft_model(base, LoraConfig(r=rank, lora_alpha=32, target_modules=LINEARS))


@dataclass(frozen=True)
class Row:
    """One sequence of a training pass.

    Attributes:
        sampled: log-probabilities when it was sampled, `[answer]`.
    """

    tokens: list[int]
    prompt_length: int
    advantage: float
    sampled: Tensor


def rows(answers: Sequence[Answer]) -> list[Row]:
    return [
        Row(
            answer.tokens,
            answer.prompt_length,
            answer.advantage,
            torch.full((len(answer.tokens) - answer.prompt_length,), SAMPLED_LOGPROB),
        )
        for answer in answers
    ]


@dataclass(frozen=True)
class Passed:
    """What a training pass found: its loss, and how far each log-probability is from the sampled
    one, `[answer tokens]`."""

    loss: float
    gap: Tensor


def policy_pass(model: Any, data: Sequence[Row], micro_batch: int) -> Passed:
    """Forward and backward of `importance_sampling`; gradients are added to the model's."""
    model.train()
    loss, gaps = 0.0, []
    for at in range(0, len(data), micro_batch):
        part_loss, part_gaps = _micro_batch(model, data[at : at + micro_batch])
        part_loss.backward()
        loss += part_loss.item()
        gaps += part_gaps
    return Passed(loss, torch.cat(gaps))


def _micro_batch(model: Any, part: Sequence[Row]) -> tuple[Tensor, list[Tensor]]:
    width = max(len(row.tokens) for row in part)
    tokens_BT = torch.full((len(part), width), PAD)
    mask_BT = torch.zeros_like(tokens_BT)
    for b, row in enumerate(part):
        tokens_BT[b, : len(row.tokens)] = torch.tensor(row.tokens)
        mask_BT[b, : len(row.tokens)] = 1
    first = min(row.prompt_length for row in part) - 1
    logits_BTV = model(
        input_ids=tokens_BT, attention_mask=mask_BT, use_cache=False, logits_to_keep=width - first
    ).logits[:, :-1]
    logprobs_BT = (
        logits_BTV.float().log_softmax(-1).gather(-1, tokens_BT[:, first + 1 :, None])[..., 0]
    )
    loss, gaps = logprobs_BT.new_zeros(()), []
    for b, row in enumerate(part):
        new_T = logprobs_BT[b, row.prompt_length - 1 - first :][: len(row.sampled)]
        loss = loss - (torch.exp(new_T - row.sampled) * row.advantage).sum()
        gaps.append((new_T.detach() - row.sampled).abs())
    return loss, gaps


def gradient(model: Any) -> dict[str, Tensor]:
    """What the adapter has gathered, by the names under which peft saves it, float64."""
    return {
        name.replace(".default", ""): weight.grad.double()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


@torch.no_grad()
def generate(
    model: Any, prompts: Sequence[Sequence[int]], num_samples: int, tokens: int
) -> tuple[Tensor, Tensor]:
    """Draw exactly `tokens` tokens `num_samples` times for each prompt, at temperature 1.

    Returns:
        Ids and their log-probabilities, `[prompts * num_samples, tokens]`, a prompt's samples in a
        row.
    """
    model.eval()
    width = max(map(len, prompts))
    ids_BT = torch.full((len(prompts), width), PAD)
    mask_BT = torch.zeros_like(ids_BT)
    for b, prompt in enumerate(prompts):
        ids_BT[b, width - len(prompt) :] = torch.tensor(prompt)
        mask_BT[b, width - len(prompt) :] = 1
    out = model.generate(
        input_ids=ids_BT, attention_mask=mask_BT, do_sample=True, top_k=0, top_p=1.0,
        temperature=1.0, max_new_tokens=tokens, num_return_sequences=num_samples,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    drawn_BT = out.sequences[:, width:]
    columns = [
        logits_BV.float().log_softmax(-1).gather(-1, drawn_BT[:, t, None])[:, 0]
        for t, logits_BV in enumerate(out.logits)
    ]
    return drawn_BT, torch.stack(columns, dim=1)
