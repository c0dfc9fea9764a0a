"""The RL step of rl_step.py with TRL's GRPOTrainer, in an environment of its own.

The trainer owns the loop: one of its steps generates prompts x group answers, passes over them
once and steps. It is held back at the beginning of each step until its turn comes. Its phases end
where its own methods do; scoring (with a reward that is drawn) counts as sampling, clipping as the
pass.

Needs trl, torch, transformers, peft and datasets; nothing of MinT is imported.
"""

import argparse
import os
import random
import tempfile
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

from benchmarks.children import Turns, rival_arguments
from benchmarks.harness import Phases
from benchmarks.workloads import RLShape, arithmetic_prompts

STEPS = 64
"""That a trainer is made for; it is stopped when there are no more turns."""


class Timed(GRPOTrainer):
    """One step's phases and counts."""

    phases: Phases
    counts: dict[str, int]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        self.phases.end("sample")
        drawn, asked = int(out["completion_mask"].sum()), int(out["prompt_mask"].sum())
        rows = len(out["completion_mask"])
        self.counts = {"gen_tokens": drawn, "train_tokens": asked + drawn - rows}
        return out


class OneTurnAStep(TrainerCallback):
    """Answers after each step and waits for the next turn; ends the training at one of another
    size, which `told` then is, or None after the last."""

    def __init__(self, turns: Turns, told: dict[str, Any]) -> None:
        self._turns, self._shape = turns, told["shape"]
        self.trainer: Timed
        self.told: dict[str, Any] | None = told

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.phases = Phases()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.trainer.phases.end("fb")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self.trainer.phases.end("optim")
        self.trainer.phases.end("publish")
        self._turns.say({**self.trainer.phases.row, **self.trainer.counts})
        self.told = self._turns.next()
        control.should_training_stop = not self.told or self.told["shape"] != self._shape
        return control


def main() -> None:
    turns, args = Turns(), rival_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    lora = LoraConfig(
        r=args.rank, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    peft = get_peft_model(model, lora)
    turns.say({"ready": True})
    told = turns.next()
    while told:
        told = train(peft, args, turns, told)


def train(
    model: Any, args: argparse.Namespace, turns: Turns, told: dict[str, Any]
) -> dict[str, Any] | None:
    """Steps of one size; the first of another, or None."""
    size = RLShape(**told["shape"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(args.folder / "tokenizer.json"))
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(
        model.config.eos_token_id
    )

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    texts = [
        tokenizer.decode(prompt)
        for step in range(told["step"], told["step"] + STEPS)
        for prompt in arithmetic_prompts(encode, step, size)
    ]
    rng = random.Random(0)
    callback = OneTurnAStep(turns, told)
    with tempfile.TemporaryDirectory() as folder:
        callback.trainer = Timed(
            model=model,
            reward_funcs=lambda completions, **_: [float(rng.random() < 0.5) for _ in completions],
            args=config(size, args.rate, folder),
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            callbacks=[callback],
        )
        callback.trainer.train()
    return callback.told


def config(size: RLShape, rate: float, folder: str) -> GRPOConfig:
    """All sequences in one pass, no reference model, no cut of the distribution, no early end."""
    return GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, fp16=False, report_to="none",
        save_strategy="no", per_device_train_batch_size=size.prompts * size.group,
        gradient_accumulation_steps=1, num_generations=size.group,
        max_completion_length=size.max_tokens, temperature=1.0, top_k=0, top_p=1.0, beta=0.0,
        generation_kwargs={"min_new_tokens": size.max_tokens}, learning_rate=rate,
        lr_scheduler_type="constant", adam_beta2=0.95, max_steps=STEPS,
        gradient_checkpointing=False, shuffle_dataset=False, logging_steps=STEPS,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
