"""A sweep over KL coefficient, temperature and group size, through the real RL loop.

A tiny arithmetic environment is played, rewarded and trained on by `recipe.rl.train.main`, once per
combination. At the end: a table, and one page with the curves and the health of all.

    python recipes/rl_hyperparameters.py

Without MINT_BASE_URL a local server starts by itself. Settings come from the environment or from a
.env file in the current folder:

    MINT_BASE_URL, MINT_API_KEY   the server; unset: the embedded one
    MINT_BASE_MODEL               Qwen/Qwen3-0.6B
    MINT_LORA_RANK                16
    MINT_RL_STEPS                 1          training steps of each configuration
    MINT_RL_KL_COEFS              0.0,0.02   how much leaving the base model costs
    MINT_RL_TEMPS                 0.7,1.0    how varied the answers are
    MINT_RL_GROUPS                2,4        answers a question
    MINT_RL_BATCH                 1          questions a step
    MINT_RL_MAX_TOKENS            64         longest answer
    MINT_RL_LR                    1e-5       learning rate of Adam
    MINT_LOG_ROOT                 runs       run folders and the page are made there

A sweep that was interrupted goes on when the script is started again with the same settings.

Exit codes: 0 all configurations finished; 1 one failed, or the server did; 2 nothing was started,
because a setting or the server is not as it should be; 130 interrupted.
"""

import asyncio
import os
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chz
from dotenv import load_dotenv

import mint
from mint import recipe
from mint.recipe import EnvFromMessageEnv, MessageEnv, MessageStepResult, get_tokenizer, sweep
from mint.recipe.messages import get_text_content
from mint.recipe.service import Service
from mint.recipe.stores.json_lines import read_lines
from mint.recipe.stores.sweep_record import Entry, State

# ------------------------------------------------------------ the environment


EXAMPLES: list[recipe.Message] = [
    message
    for a, b in ((4, 3), (2, 6), (9, 5), (7, 8))
    for message in (
        recipe.Message(role="user", content=f"What is {a} + {b}?"),
        recipe.Message(role="assistant", content=str(a + b)),
    )
]
"""Said before the question. Without them a model of 135M parameters talks until it is cut off, in
half of the episodes, and what is cut off never reaches `step`."""


class ArithmeticMessageEnv(MessageEnv):
    """One question; the first number of the answer counts, behind an echo of the question."""

    def __init__(self, question: str, answer: str) -> None:
        self.question = question
        self.answer = answer

    async def initial_observation(self) -> list[recipe.Message]:
        return [
            {
                "role": "system",
                "content": "You are a precise calculator. Reply with only the final number.",
            },
            *EXAMPLES,
            {"role": "user", "content": self.question},
        ]

    async def step(self, message: recipe.Message) -> MessageStepResult:
        content = get_text_content(message).strip()
        prediction = _first_number(content)
        correct = prediction == self.answer
        return MessageStepResult(
            reward=1.0 if correct else -0.25,
            episode_done=True,
            next_messages=[],
            metrics={"correct": float(correct)},
        )


_ECHO = re.compile(r"\d+\s*(?:\+|plus|and)\s*\d+")


def _first_number(text: str) -> str | None:
    """The first integer in the text, without leading zeros; None if there is none.

    A small model repeats the question before it answers ("3 + 4 = 7", "the sum of 3 and 4 is 7");
    what it repeats is no answer.
    """
    found = re.search(r"-?\d{1,30}", _ECHO.sub("", text))
    return str(int(found[0])) if found else None


def make_question(rng: random.Random) -> tuple[str, str]:
    """A sum of two small numbers, and its answer."""
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"What is {a} + {b}?", str(a + b)


@dataclass(frozen=True)
class ArithmeticEnvGroupBuilder(recipe.rl.types.EnvGroupBuilder):
    question: str
    answer: str
    group_size: int
    renderer_name: str
    model_name: str
    max_tokens: int = 64

    async def make_envs(self) -> list[EnvFromMessageEnv]:
        tokenizer = get_tokenizer(self.model_name)
        renderer = recipe.renderers.get_renderer(self.renderer_name, tokenizer)
        return [
            EnvFromMessageEnv(
                renderer=renderer,
                message_env=ArithmeticMessageEnv(self.question, self.answer),
                max_trajectory_tokens=512,
                max_generation_tokens=self.max_tokens,
            )
            for _ in range(self.group_size)
        ]


class ArithmeticRLDataset(recipe.rl.types.RLDataset):
    """Batch i has the same questions whenever it is asked for, so a run can resume."""

    def __init__(self, builder: "ArithmeticRLDatasetBuilder") -> None:
        self.builder = builder

    def get_batch(self, index: int) -> Sequence[ArithmeticEnvGroupBuilder]:
        one = self.builder
        rng = random.Random(f"{one.seed} {index}")
        return [
            ArithmeticEnvGroupBuilder(
                question, answer, one.group_size, one.renderer_name, one.model_name, one.max_tokens
            )
            for question, answer in (make_question(rng) for _ in range(one.batch_size))
        ]

    def __len__(self) -> int:
        return self.builder.batches


@chz.chz
class ArithmeticRLDatasetBuilder(recipe.rl.types.RLDatasetBuilder):
    batches: int
    batch_size: int
    group_size: int
    renderer_name: str
    model_name: str
    max_tokens: int = 64
    seed: int = 0

    async def __call__(self):
        return ArithmeticRLDataset(self), None


# ------------------------------------------------------------------ settings


class SetupError(Exception):
    """Something to put right before anything can start."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One sweep, as the environment asks for it."""

    base_model: str
    lora_rank: int
    steps: int
    kl_coefs: Sequence[float]
    temperatures: Sequence[float]
    group_sizes: Sequence[int]
    batch_size: int
    max_tokens: int
    learning_rate: float
    log_root: str


def read_settings(env: Mapping[str, str]) -> Settings:
    """Settings from the environment; an empty variable counts as unset.

    Raises:
        SetupError: naming the variable whose value cannot be.
    """

    def numbers(name: str, default: str, kind: type, lowest: float) -> list[Any]:
        text = env.get(name) or default
        try:
            values = [kind(part) for part in text.split(",")]
        except ValueError:
            values = []
        if not values or not all(lowest <= value < float("inf") for value in values):
            raise SetupError(f"{name}={text!r}: give {_WORDS[kind]}, {lowest:g} or more.")
        return list(dict.fromkeys(values))

    def number(name: str, default: str, kind: type, lowest: float) -> Any:
        found = numbers(name, default, kind, lowest)
        if len(found) > 1:
            raise SetupError(f"{name}={env[name]!r}: give one value.")
        return found[0]

    return Settings(
        base_model=env.get("MINT_BASE_MODEL") or "Qwen/Qwen3-0.6B",
        lora_rank=number("MINT_LORA_RANK", "16", int, 1),
        steps=number("MINT_RL_STEPS", "1", int, 1),
        kl_coefs=numbers("MINT_RL_KL_COEFS", "0.0,0.02", float, 0),
        temperatures=numbers("MINT_RL_TEMPS", "0.7,1.0", float, 0.01),
        group_sizes=numbers("MINT_RL_GROUPS", "2,4", int, 1),
        batch_size=number("MINT_RL_BATCH", "1", int, 1),
        max_tokens=number("MINT_RL_MAX_TOKENS", "64", int, 1),
        learning_rate=number("MINT_RL_LR", "1e-5", float, 0),
        log_root=env.get("MINT_LOG_ROOT") or str(recipe.cli_utils.runs_path()),
    )


_WORDS = {int: "whole numbers", float: "numbers"}


# ----------------------------------------------------------------- the sweep


def make_config(
    settings: Settings, renderer_name: str, log_path: str, kl: float, temp: float, group: int
) -> recipe.rl.train.Config:
    """One configuration of the grid. Leaving the base model costs something only where kl > 0, and
    only then is there a model to measure against."""
    kl_reference_config = (
        recipe.rl.train.KLReferenceConfig(base_model=settings.base_model) if kl > 0 else None
    )
    return recipe.rl.train.Config(
        learning_rate=settings.learning_rate,
        dataset_builder=ArithmeticRLDatasetBuilder(
            batches=settings.steps,
            batch_size=settings.batch_size,
            group_size=group,
            renderer_name=renderer_name,
            model_name=settings.base_model,
            max_tokens=settings.max_tokens,
        ),
        model_name=settings.base_model,
        renderer_name=renderer_name,
        lora_rank=settings.lora_rank,
        max_tokens=settings.max_tokens,
        temperature=temp,
        kl_penalty_coef=kl,
        kl_reference_config=kl_reference_config,
        loss_fn="importance_sampling",
        max_steps=settings.steps,
        save_every=999,
        eval_every=999,
        log_path=log_path,
    )


def make_grid(settings: Settings, renderer_name: str, stem: str) -> list[sweep.Configuration]:
    """Every combination, with a run folder of its own beside `stem`."""
    grid = sweep.grid(kl=settings.kl_coefs, temp=settings.temperatures, group=settings.group_sizes)
    return [
        sweep.Configuration(
            name, one, make_config(settings, renderer_name, f"{stem}-{name}", **one)
        )
        for one, name in ((one, name_of(**one)) for one in grid)
    ]


def name_of(kl: float, temp: float, group: int) -> str:
    return f"kl{kl}-t{temp}-g{group}".replace(".", "p")


def choose_stem(settings: Settings, renderer_name: str) -> str:
    """Where to log: where an interrupted sweep of the same settings did, or a new place."""
    root = Path(settings.log_root).expanduser().resolve()
    for folder in sorted(root.glob("mint-rl-sweep-*/"), reverse=True):
        grid = make_grid(settings, renderer_name, str(folder))
        if sweep.can_go_on(folder, grid):
            log(f"Going on with the sweep in {folder}.")
            return str(folder)
    return str(root / f"mint-rl-sweep-{int(time.time())}")


def announce(one: sweep.Configuration, entry: Entry) -> None:
    if entry.state is State.running:
        kl, temp, group = one.settings.values()
        print(f"\n--- Training config: kl={kl}, temp={temp}, group={group} ---")
        print(f"Log path: {entry.log_path}", flush=True)
    elif entry.state is State.failed:
        log(f"{one.name} failed: {entry.error}")


# -------------------------------------------------------------------- output


def last_row(log_path: str) -> Mapping[str, Any]:
    """The last line of a run's metrics; empty if there is none."""
    rows = read_lines(Path(log_path) / "metrics.jsonl")
    return rows[-1] if rows else {}


def summary_line(entry: Entry) -> str:
    kl, temp, group = entry.settings.values()
    row = last_row(entry.log_path)
    reward = row.get("env/all/reward/total")
    correct = [value for key, value in row.items() if key.endswith("/correct")]
    return (
        f"{kl:<8.2f} {temp!s:<8} {group!s:<8} {row.get('progress/batch', -1) + 1:<8} "
        f"{'n/a' if reward is None else f'{reward:.3f}':<14} "
        f"{f'{correct[-1]:.2f}' if correct else 'n/a':<10} {entry.log_path}"
    )


def print_banner(settings: Settings, renderer_name: str) -> None:
    sizes = [len(settings.kl_coefs), len(settings.temperatures), len(settings.group_sizes)]
    print("\n=== RL Hyperparameter Sweep ===")
    print(f"Model:          {settings.base_model}")
    print(f"Renderer:       {renderer_name}")
    print(f"Steps/config:   {settings.steps}")
    print(f"Batch size:     {settings.batch_size}")
    print(f"KL coefficients:{settings.kl_coefs}")
    print(f"Temperatures:   {settings.temperatures}")
    print(f"Group sizes:    {settings.group_sizes}")
    print(
        f"Grid size:      {' x '.join(map(str, sizes))} = {sizes[0] * sizes[1] * sizes[2]} configs"
    )


def print_summary(report: sweep.SweepReport) -> None:
    print("\n=== RL Grid Summary ===")
    print(
        f"{'KL':<8} {'Temp':<8} {'Group':<8} {'Steps':<8} {'Mean reward':<14} {'Correct':<10} Log path"
    )
    print("-" * 110)
    for entry in report.entries:
        print(summary_line(entry))
    log(f"\nCompared on one page: {report.page}")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------- main


async def preflight(service: Service, settings: Settings) -> None:
    """See that the server knows the key and has the model.

    Raises:
        SetupError: it has not that model; with those that it has.
    """
    models = await service.supported_models()
    print(f"Auth preflight: OK ({len(models)} supported models)", flush=True)
    if settings.base_model not in models:
        raise SetupError(
            f"MINT_BASE_MODEL={settings.base_model}: this server offers "
            f"{', '.join(models) or 'nothing'}."
        )


async def run(settings: Settings) -> bool:
    """Run the sweep; whether every configuration finished."""
    print("Connecting to MinT server...")
    print(f"Endpoint: {os.environ.get('MINT_BASE_URL') or 'embedded, on this machine'}", flush=True)
    metadata = {"recipe_name": "rl_hyperparameters"}
    async with await Service.connect(base_url=None, user_metadata=metadata) as service:
        await preflight(service, settings)
        renderer_name = recipe.get_recommended_renderer_name(settings.base_model)
        print_banner(settings, renderer_name)
        stem = choose_stem(settings, renderer_name)
        report = await sweep.run(
            make_grid(settings, renderer_name, stem),
            folder=stem,
            train=recipe.rl.train.main,
            service_client=service.client,
            title=f"RL hyperparameters on {settings.base_model}",
            on_change=announce,
        )
    print_summary(report)
    return not report.failed


def main() -> int:
    load_dotenv(Path.cwd() / ".env")
    try:
        return 0 if asyncio.run(run(read_settings(os.environ))) else 1
    except (SetupError, mint.ConfigError, recipe.exceptions.ConfigurationError) as error:
        log(f"Cannot start: {error}")
        return 2
    except (mint.MintError, mint.TinkerError) as error:
        log(f"Failed: {str(error).split(' for self.request_id=')[0]}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
