"""Do the overlapping schedules save wall time where a few episodes take ten times as long?

recipe.rl.train runs the same data set under its three schedules. Episodes wait, as those that use
tools or a slow judge do: nine of ten groups of a batch take --short seconds, one takes --long. The
service is a stand-in that answers at once, except that gradients of a whole batch take --train
seconds, one after the other, and hold no sampling up. So what differs is only who waits for whom:

    synchronous   every step waits for its slowest episode, then trains, then begins the next
    streaming     trains on what is done while the slowest episodes last; on-policy like the first
    asynchronous  slow episodes go on while others are trained and new ones begin, off-policy

- speed-up: wall seconds of a step under the synchronous schedule over those under the other.
- staleness: steps between the weights that sampled a group and those that it trained, at most.

    python -m benchmarks.rl_schedules [--steps 12] [--repeats 3] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import asyncio
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import chz

from benchmarks import harness
from mint import ModelInput
from mint.recipe.rl.train import AsyncConfig, Config, StreamMinibatchConfig
from mint.recipe.rl.train import main as train
from mint.recipe.rl.types import (
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

GROUPS, MEMBERS = 10, 4
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {},
    "streaming": {
        "stream_minibatch_config": StreamMinibatchConfig(
            groups_per_batch=GROUPS, num_minibatches=GROUPS // 2
        )
    },
    "asynchronous": {"async_config": AsyncConfig(max_steps_off_policy=1, groups_per_batch=GROUPS)},
}


class Waiting(Env):
    """One turn, after a while."""

    def __init__(self, group: "WaitingGroup") -> None:
        self.group = group

    async def initial_observation(self) -> Any:
        await asyncio.sleep(self.group.seconds)
        return ModelInput.from_ints([100 + self.group.place]), [0]

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        return StepResult(float(action[0] == 1), True, ModelInput.empty(), [])


@dataclass(frozen=True)
class WaitingGroup(EnvGroupBuilder):
    place: int
    seconds: float

    async def make_envs(self) -> Sequence[Env]:
        return [Waiting(self) for _ in range(MEMBERS)]


@chz.chz
class Waits(RLDatasetBuilder):
    steps: int
    short_s: float
    long_s: float

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return WaitsData(self.steps, self.short_s, self.long_s), None


class WaitsData(RLDataset):
    def __init__(self, steps: int, short_s: float, long_s: float) -> None:
        self.steps, self.short_s, self.long_s = steps, short_s, long_s

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        slow = index % GROUPS  # a different place in every batch
        return [
            WaitingGroup(place, self.long_s if place == slow else self.short_s)
            for place in range(GROUPS)
        ]

    def __len__(self) -> int:
        return self.steps


@dataclass(frozen=True)
class Run:
    """One schedule, once."""

    step_s: float
    staleness: float


def run(schedule: str, args: argparse.Namespace) -> Run:
    from tests.recipe.fake_service import FakeService

    class Trains(FakeService):
        """Gradients take their time, in the order in which they are asked for."""

        busy_until = 0.0

        def promise(self, call: Any, make: Any, left: Any = lambda: None) -> Any:
            now, self.latency_s = time.monotonic(), 0.0
            if call.name in ("forward_backward", "optim_step"):
                share = len(call.arguments.get("data", ())) / (GROUPS * MEMBERS)
                self.busy_until = max(now, self.busy_until) + share * args.train
                self.latency_s = self.busy_until - now
            return super().promise(call, make, left)

    answers = iter(range(10**9))
    service = Trains(lambda prompt, params: ([1 + next(answers) % 2], [-0.5], "stop"))
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        config = Config(
            learning_rate=1e-4,
            dataset_builder=Waits(steps=args.steps, short_s=args.short, long_s=args.long),
            model_name="test/tiny",
            max_tokens=4,
            log_path=folder,
            service_client=service,
            num_groups_to_log=0,
            rollout_json_export=False,
            eval_every=0,
            save_every=0,
            **SCHEDULES[schedule],
        )
        began = time.perf_counter()
        asyncio.run(train(config))
        took = time.perf_counter() - began
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return Run(took / args.steps, max(row.get("async/staleness_max", 0) for row in rows))


def arguments() -> argparse.Namespace:
    parser = harness.bare_arguments(__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", type=float, default=0.1, help="seconds of most episodes")
    parser.add_argument("--long", type=float, default=1.0, help="seconds of one in ten")
    parser.add_argument("--train", type=float, default=0.3, help="seconds of a batch's gradients")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    logging.getLogger("mint.recipe").setLevel(logging.ERROR)
    runs: dict[str, list[Run]] = {name: [] for name in SCHEDULES}
    for _ in range(args.repeats):
        for name in SCHEDULES:
            runs[name].append(run(name, args))
    step_s = {name: statistics.median(one.step_s for one in some) for name, some in runs.items()}
    staleness = {name: max(one.staleness for one in some) for name, some in runs.items()}
    speed_up = {name: step_s["synchronous"] / took for name, took in step_s.items()}
    print(
        harness.table(
            ("schedule", "s per step", "speed-up", "staleness"),
            [
                (name, f"{step_s[name]:.3f}", f"{speed_up[name]:.2f}", f"{staleness[name]:.0f}")
                for name in SCHEDULES
            ],
        )
    )
    figures = {
        "step_s": {name: round(value, 4) for name, value in step_s.items()},
        "speed_up": {name: round(value, 3) for name, value in speed_up.items()},
        "staleness": staleness,
    }
    harness.report("rl_schedules", figures, told, save=args.save)


if __name__ == "__main__":
    main()
