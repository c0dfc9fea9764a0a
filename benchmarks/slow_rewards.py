"""Does a step wait for its slowest reward, or for all of them together?

One RL step of 8 prompts x 6 answers (48 rewards) of mint.recipe.rl.train, its rewards by an adapter
of mint.rl_core, on one real server. Its model is a tiny random one: what a larger one takes would be
the same in all runs, and hide what is sought. They differ in their reward alone, and the first step
of each, in which the server meets the prompts, does not count:

    instant       answers at once
    __call__      a plain function that sleeps --seconds, each call in a thread of its own
    acall         a coroutine that waits as long, as for a judge over HTTP
    score_batch   one call for a group's answers that waits as long, as a reward model would

- growth: what a step takes more than the one with an instant reward. One after the other the rewards
  would add 48 times --seconds. Groups are scored as each is done, so a reward may also pass while
  others are still sampled, and the growth is then less than --seconds.

Then what goes wrong, in one step each: of one prompt's six answers

    hangs                      the reward never answers; it is cut at --limit seconds
    raises, error_score        the reward raises, and the adapter says what that is worth
    raises, group left out     it raises, and the run tolerates a group that fails
    raises, not tolerated      it raises, and nobody has said what then: the run ends

with what the step says: the shares of rewards that were cut and that failed, the groups that were
kept, and the doctor's first sentence.

    python -m benchmarks.slow_rewards [--seconds 2] [--steps 2] [--save]

Prints two tables, and a last line of JSON.
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import mint
from benchmarks import harness
from mint import ModelInput
from mint.recipe.rl import train
from mint.recipe.rl.rollout_strategy import RetryOnFailure
from mint.recipe.rl.run_health import examine_run
from mint.recipe.stores.json_lines import read_lines
from mint.rl_core import Reward, RLAdapter, train_config
from mint.testing import LocalService, local_service

GROUPS, MEMBERS, MAX_TOKENS = 8, 6, 16
QUESTIONS = [f"What is {10 * n + 7} + {n + 5}?" for n in range(GROUPS)]
TROUBLED = QUESTIONS[3]


def worth(response: ModelInput) -> float:
    """Some number in [0, 1] that differs between answers, so that every step has what to learn."""
    return sum(response.to_ints()) % 101 / 100


class Instant(RLAdapter):
    blocking = False

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        return Reward(worth(response))


class Slow(RLAdapter, abstract=True):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class InThreads(Slow):
    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        time.sleep(self.seconds)
        return Reward(worth(response))


class Awaited(Slow):
    async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
        await asyncio.sleep(self.seconds)
        return Reward(worth(response))


class Batched(Slow):
    async def score_batch(self, pairs: Sequence[tuple[ModelInput, ModelInput]]) -> list[Reward]:
        await asyncio.sleep(self.seconds)
        return [Reward(worth(response)) for _, response in pairs]


class Troubled(RLAdapter, abstract=True):
    """Does well, but for the answers to one question."""

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        if TROUBLED in self.get_tokenizer().decode(prompt.to_ints()):
            self.fail()
        return Reward(worth(response))

    def fail(self) -> None:
        raise ValueError("the judge does not answer in JSON")


class Hanging(Troubled):
    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.timeout_s = limit_s

    def fail(self) -> None:
        threading.Event().wait()


class Raising(Troubled):
    pass


class Forgiving(Troubled):
    error_score = 0.0


@dataclass(frozen=True)
class Run:
    """One run's rows of metrics, the doctor's sentences, and how it ended."""

    rows: Sequence[Mapping[str, Any]]
    doctor: Sequence[str]
    seconds: float
    error: str = ""


def run(server: LocalService, adapter: RLAdapter, steps: int, **fields: Any) -> Run:
    """Some steps of training with the adapter's rewards."""
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        config = train_config(
            adapter,
            QUESTIONS * steps,
            model_name=server.model,
            batch_size=GROUPS,
            group_size=MEMBERS,
            max_tokens=MAX_TOKENS,
            seed=None,  # each batch has every question once
            learning_rate=2e-5,
            lora_rank=16,
            log_path=folder,
            eval_every=0,
            save_every=0,
            service_client=mint.ServiceClient(base_url=server.url, api_key=server.key),
            **fields,
        )
        began, error = time.perf_counter(), ""
        try:
            asyncio.run(train.main(config))
        except ValueError as raised:
            error = f"{type(raised).__name__}: {raised}"
        took = time.perf_counter() - began
        rows = read_lines(Path(folder) / "metrics.jsonl")
        doctor = examine_run(Path(folder)).lines() if rows else []
    return Run(rows, doctor, took, error)


def slow(server: LocalService, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a step with each kind of reward."""
    adapters = {
        "instant": Instant(),
        "__call__": InThreads(args.seconds),
        "acall": Awaited(args.seconds),
        "score_batch": Batched(args.seconds),
    }
    step_s = {}
    for name, adapter in adapters.items():
        rows = run(server, adapter, args.steps + 1).rows[1:]
        step_s[name] = statistics.median(row["time/total"] for row in rows)
    growth_s = {name: took - step_s["instant"] for name, took in step_s.items()}
    in_turn_s = GROUPS * MEMBERS * args.seconds
    print(
        harness.table(
            ("reward", "s per step", "growth, s", "one after the other, s"),
            [(name, step_s[name], growth_s[name], in_turn_s) for name in step_s],
        )
    )
    return {
        "step_s": {name: round(took, 3) for name, took in step_s.items()},
        "growth_s": {name: round(more, 3) for name, more in growth_s.items()},
        "in_turn_s": in_turn_s,
    }


def failing(server: LocalService, args: argparse.Namespace) -> dict[str, Any]:
    """What a step with a reward that fails comes to."""
    runs = {
        "hangs": run(server, Hanging(args.limit), 1),
        "raises, error_score": run(server, Forgiving(), 1),
        "raises, group left out": run(
            server, Raising(), 1, rollout_error_tolerance=RetryOnFailure(max_retries=0)
        ),
        "raises, not tolerated": run(server, Raising(), 1),
    }
    told = {name: outcome(one) for name, one in runs.items()}
    heads = ("reward", "s", "cut", "failed", "groups", "the doctor, or the error")
    print()
    print(harness.table(heads, [(name, *one.values()) for name, one in told.items()]))
    return {"failing": told}


def outcome(one: Run) -> dict[str, Any]:
    row = one.rows[-1] if one.rows else {}
    return {
        "seconds": round(row.get("time/total", one.seconds), 3),
        "cut": row.get("env/all/adapter_timeout", 0.0),
        "failed": row.get("env/all/adapter_error", 0.0),
        "groups": row.get("batch/groups_completed", 0),
        "says": one.error or one.doctor[1],
    }


def arguments() -> argparse.Namespace:
    parser = harness.bare_arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a slow reward")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds a reward may take")
    parser.add_argument("--steps", type=int, default=2, help="that count")
    parser.set_defaults(threads=1)  # of the server, for the record
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    logging.getLogger("mint.recipe").setLevel(logging.ERROR)
    logging.getLogger("mint.rl_core").setLevel(logging.ERROR)
    with local_service() as server:
        figures = {**slow(server, args), **failing(server, args)}
    harness.report("slow_rewards", figures, told, save=args.save)


if __name__ == "__main__":
    main()
