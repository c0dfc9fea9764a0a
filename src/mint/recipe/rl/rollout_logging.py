"""What every episode of a step came to, one line each: lengths, rewards, metrics; no text."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from mint.recipe.rl.types import Trajectory, TrajectoryGroup, Transition
from mint.recipe.stores.json_lines import append_lines
from mint.recipe.stores.run_folder import iteration_folder

SCHEMA_VERSION = 1


class PlayedGroup(Protocol):
    """A group to be written down; the loop's own group is one."""

    @property
    def index(self) -> int: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def sampler_step(self) -> int:
        """The step that began with the weights it was sampled from."""
        ...

    @property
    def trajectory_group(self) -> TrajectoryGroup | None:
        """None: it failed, and is left out."""
        ...


def write_rollout_summaries(
    folder: Path, split: str, iteration: int, groups: Iterable[PlayedGroup]
) -> None:
    """Write `iteration_<six digits>/<split>_rollout_summaries.jsonl`, a line per trajectory.

    It writes to disk: call it off the event loop.

    Args:
        folder: the run's.
        split: "train" or "eval/<name>".
    """
    into = iteration_folder(folder, iteration)
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"{split.replace('/', '_')}_rollout_summaries.jsonl"
    path.unlink(missing_ok=True)  # of a run that was killed in this step
    common = {"schema_version": SCHEMA_VERSION, "split": split, "iteration": iteration}
    lines = (line for group in groups for line in group_summary(group))
    append_lines(path, [{**common, **line} for line in lines])


def group_summary(group: PlayedGroup) -> list[dict[str, Any]]:
    """A line per member of a group; none of one that failed."""
    played = group.trajectory_group
    if played is None:
        return []
    totals = played.get_total_rewards()
    return [
        {
            "group_idx": group.index,
            "traj_idx": member,
            "tags": list(group.tags),
            "sampling_client_step": group.sampler_step,
            "total_reward": totals[member],
            "final_reward": played.final_rewards_G[member],
            "trajectory_metrics": played.metrics_G[member],
            "stop_reason": trajectory.stop_reason,
            **trajectory_summary(trajectory),
        }
        for member, trajectory in enumerate(played.trajectories_G)
    ]


def trajectory_summary(trajectory: Trajectory) -> dict[str, Any]:
    """Its turns in numbers."""
    return {
        "final_ob_len": trajectory.final_ob.length,
        "steps": [_turn(i, turn) for i, turn in enumerate(trajectory.transitions)],
    }


def _turn(index: int, turn: Transition) -> dict[str, Any]:
    return {
        "step_idx": index,
        "ob_len": turn.ob.length,
        "ac_len": len(turn.ac.tokens),
        "reward": turn.reward,
        "episode_done": turn.episode_done,
        "metrics": turn.metrics,
        "logs": turn.logs,
    }
