"""What every episode came to, a line each."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from mint import ModelInput
from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.rl.rollout_logging import write_rollout_summaries
from mint.recipe.rl.types import Trajectory, TrajectoryGroup, Transition


@dataclass
class Played:
    index: int
    trajectory_group: TrajectoryGroup | None
    tags: list[str] = field(default_factory=lambda: ["math"])
    sampler_step: int = 4


def turn(prompt: list[int], tokens: list[int], reward: float, done: bool) -> Transition:
    return Transition(
        ob=ModelInput.from_ints(prompt),
        ac=TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-0.5] * len(tokens)),
        reward=reward,
        episode_done=done,
        metrics={"correct": 1.0},
        logs={"answer": "4"},
    )


def group() -> TrajectoryGroup:
    episode = Trajectory(
        transitions=[turn([1, 2], [3], 0.0, False), turn([1, 2, 3, 4], [5, 6], 1.0, True)],
        final_ob=ModelInput.empty(),
        stop_reason="completed",
    )
    return TrajectoryGroup([episode, episode], [0.5, 0.0], [{"judge": 1.0}, {}])


def test_a_line_has_the_numbers_of_its_episode(tmp_path: Path):
    write_rollout_summaries(tmp_path, "train", 7, [Played(2, group())])

    lines = (tmp_path / "iteration_000007" / "train_rollout_summaries.jsonl").read_text()
    first, second = [json.loads(line) for line in lines.splitlines()]
    assert first == {
        "schema_version": 1, "split": "train", "iteration": 7, "group_idx": 2, "traj_idx": 0,
        "tags": ["math"], "sampling_client_step": 4, "total_reward": 1.5, "final_reward": 0.5,
        "trajectory_metrics": {"judge": 1.0}, "stop_reason": "completed", "final_ob_len": 0,
        "steps": [
            {"step_idx": 0, "ob_len": 2, "ac_len": 1, "reward": 0.0, "episode_done": False,
             "metrics": {"correct": 1.0}, "logs": {"answer": "4"}},
            {"step_idx": 1, "ob_len": 4, "ac_len": 2, "reward": 1.0, "episode_done": True,
             "metrics": {"correct": 1.0}, "logs": {"answer": "4"}},
        ],
    }  # fmt: skip
    assert (second["traj_idx"], second["total_reward"]) == (1, 1.0)


def test_a_failed_group_has_no_lines_and_an_evaluation_a_file_of_its_own(tmp_path: Path):
    write_rollout_summaries(tmp_path, "eval/test", 0, [Played(0, None), Played(1, group())])

    path = tmp_path / "iteration_000000" / "eval_test_rollout_summaries.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["group_idx"] for line in lines] == [1, 1]


def test_a_step_that_is_played_again_after_a_kill_is_written_once(tmp_path: Path):
    for _ in range(2):
        write_rollout_summaries(tmp_path, "train", 0, [Played(0, group())])
    path = tmp_path / "iteration_000000" / "train_rollout_summaries.jsonl"
    assert len(path.read_text().splitlines()) == 2
