"""The RL step of rl_step.py with transformers and peft, in a process that waits for its turn."""

from pathlib import Path

import torch
from tokenizers import Tokenizer

from benchmarks import harness, rivals
from benchmarks.children import Turns, rival_arguments
from benchmarks.workloads import RLShape, arithmetic_prompts, group_advantages

MICRO_BATCH = 16
"""Sequences of a training pass computed at once: the quickest of 8, 16 and 48 in train_step.py."""
MICRO_BATCH_LONG = 8
"""Of sequences of some hundred tokens, of which 16 did not fit into 24 GiB beside a server."""


class Loop:
    """What a user writes by hand: one model in memory, which samples and trains."""

    def __init__(self, model: str, folder: Path, rank: int, rate: float) -> None:
        self._model = rivals.load_peft(model, rank=rank)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        trained = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, step: int, shape: dict[str, int]) -> dict[str, float]:
        size = RLShape(**shape)
        micro_batch = MICRO_BATCH if size.max_tokens < 64 else MICRO_BATCH_LONG
        prompts = arithmetic_prompts(lambda text: self._tokenizer.encode(text).ids, step, size)
        advantages = [a for group in group_advantages(step, size) for a in group]
        phases = harness.Phases()
        drawn_BT, logprobs_BT = rivals.generate(self._model, prompts, size.group, size.max_tokens)
        phases.end("sample")
        data = [
            rivals.Row([*prompt, *drawn_BT[b].tolist()], len(prompt), advantages[b], logprobs_BT[b])
            for b in range(len(advantages))
            for prompt in [prompts[b // size.group]]
        ]
        passed = rivals.policy_pass(self._model, data, micro_batch)
        phases.end("fb")
        self._optimizer.step()
        self._optimizer.zero_grad()
        phases.end("optim")
        phases.end("publish")
        return {
            **phases.row,
            "logprob_gap_mean": float(passed.gap.mean()),
            "logprob_gap_max": float(passed.gap.max()),
            "gen_tokens": drawn_BT.numel(),
            "train_tokens": sum(len(row.tokens) - 1 for row in data),
        }


def main() -> None:
    turns = Turns()
    args = rival_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    loop = Loop(args.model, args.folder, args.rank, args.rate)
    turns.say({"ready": True})
    turns.serve(loop.step)


if __name__ == "__main__":
    main()
