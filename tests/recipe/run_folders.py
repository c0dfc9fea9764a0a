"""Run folders as the loop leaves them, made in a moment; their numbers are drawn from a seed."""

import json
import math
import random
from pathlib import Path
from typing import Any

from mint import ModelInput
from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.rl.types import Trajectory, TrajectoryGroup, Transition


def row(step: int, total: int, reward: float, **more: float) -> dict[str, Any]:
    """A row of metrics.jsonl: the keys that every step has, and more."""
    return {
        "step": step,
        "progress/batch": step,
        "progress/done_frac": (step + 1) / total,
        "optim/lr": 1e-4,
        "env/all/reward/total": reward,
        **more,
    }


def a_run(
    folder: Path, steps: int = 24, seed: int = 0, *, finished: bool = True, rises_to: float = 0.9
) -> Path:
    """A run whose reward rises, with everything that a page shows."""
    rng = random.Random(seed)
    rows = []
    for step in range(steps):
        share = step / max(1, steps - 1)
        reward = -0.1 + (rises_to + 0.1) * share**0.7 + rng.gauss(0, 0.06)
        rows.append(
            row(
                step, steps, round(reward, 4),
                **{
                    "env/all/correct": max(0.0, min(1.0, reward + rng.gauss(0, 0.04))),
                    "env/all/ac_tokens_per_turn": 40 - 30 * share + rng.gauss(0, 2),
                    "env/all/ob_tokens_per_turn": 48.0,
                    "env/all/turns_per_episode": 1.0,
                    "env/all/total_episodes": 64,
                    "env/all/by_group/frac_mixed": 0.9 - 0.5 * share,
                    "env/all/by_group/frac_all_good": 0.5 * share,
                    "env/all/by_group/frac_all_bad": 0.1,
                    "env/all/frac/stop/max_tokens": max(0.0, 0.6 - share),
                    "optim/entropy": 1.4 - 1.1 * share + rng.gauss(0, 0.05),
                    "optim/kl_sample_train_v1": rng.gauss(0.0005, 0.0004),
                    "optim/kl_sample_train_v2": abs(rng.gauss(0.0008, 0.0003)),
                    "kl_policy_base": 0.4 * share + abs(rng.gauss(0, 0.01)),
                    "health/episodes_cut_by_length": max(0.0, 0.6 - share),
                    "health/groups_with_equal_rewards": 0.1 + 0.5 * share,
                    "tokens/cumulative/sampled": 2560 * (step + 1),
                    "time/total": 4 + rng.random(),
                    "time/train": 1.5 + 0.2 * rng.random(),
                },
            )
        )  # fmt: skip
    return write_run(folder, rows, finished=finished)


def write_run(folder: Path, rows: list[dict[str, Any]], *, finished: bool = True) -> Path:
    """A folder with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "__type__": "Config", "model_name": "tiny", "learning_rate": 1e-4, "temperature": 1.0,
        "kl_penalty_coef": 0.0, "load_checkpoint_path": None,
        "dataset_builder": {"__type__": "SumsBuilder", "batch_size": 8},
        "max_tokens": 64,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    if finished:
        record = {
            "name": "final", "batch": len(rows), "final": True,
            "state_path": "tinker://run/weights/final",
            "sampler_path": "tinker://run/sampler_weights/final",
        }  # fmt: skip
        (folder / "checkpoints.jsonl").write_text(json.dumps(record) + "\n")
    return folder


class CharTokenizer:
    """Every character is a token of its own: its code point."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: list[int], /) -> str:
        return "".join(chr(one) for one in ids)


def said(prompt: str, answer: str, reward: float = 0.0, **more: Any) -> Transition:
    """One turn in the tokens of CharTokenizer; each token was as likely as one in two."""
    tokens = CharTokenizer().encode(answer)
    return Transition(
        ob=ModelInput.from_ints(CharTokenizer().encode(prompt)),
        ac=TokensWithLogprobs(tokens, [-math.log(2)] * len(tokens)),
        reward=reward,
        episode_done=True,
        **more,
    )


def played(*episodes: list[Transition]) -> TrajectoryGroup:
    """A group of these episodes."""
    return TrajectoryGroup(
        trajectories_G=[Trajectory(one, ModelInput.empty()) for one in episodes],
        final_rewards_G=[0.0] * len(episodes),
        metrics_G=[{} for _ in episodes],
    )
