"""Reinforcement learning over several turns: a guessing game with feedback.

The environment thinks of a number; the model guesses, hears "higher" or "lower", and guesses again.
What it has to learn is to use what it heard: the reward counts only guesses that the feedback so
far allows, and it is highest for finding the number early.

    python recipes/multi_turn_rl.py

Without MINT_BASE_URL a local server starts by itself. Settings come from the environment or from a
.env file in the current folder:

    MINT_BASE_URL, MINT_API_KEY     the server; unset: the embedded one
    MINT_BASE_MODEL                 Qwen/Qwen3-0.6B
    MINT_LORA_RANK                  16
    MINT_MULTI_TURN_STEPS           20       training steps
    MINT_MULTI_TURN_BATCH           4        games a step
    MINT_MULTI_TURN_GROUP           8        attempts at each game
    MINT_MULTI_TURN_HIGHEST         10       the number lies between 1 and this
    MINT_MULTI_TURN_GUESSES         4        turns of a game
    MINT_MULTI_TURN_MAX_TOKENS      16       longest guess
    MINT_MULTI_TURN_LR              1e-4     learning rate of Adam
    MINT_LOG_ROOT                   runs     the run folder is made there

The run folder is named after the model, so that a run that was interrupted goes on when the script
is started again; one that is complete is left as it is. More steps train it further.

Exit codes: 0 trained; 1 the server or the training failed; 2 nothing was started, because a setting
or the server is not as it should be; 130 interrupted.
"""

import asyncio
import os
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chz
from dotenv import load_dotenv

import mint
from mint import recipe
from mint.recipe import EnvFromMessageEnv, MessageEnv, MessageStepResult, get_tokenizer
from mint.recipe.messages import get_text_content
from mint.recipe.service import Service

# ------------------------------------------------------------------- the game


class GuessingEnv(MessageEnv):
    """One game. Every turn is answered with the whole conversation so far, which the next prompt
    then holds: so the episode stays one sequence, and trains as one."""

    def __init__(self, secret: int, highest: int, guesses: int) -> None:
        self.secret = secret
        self.guesses_left = guesses
        self.low, self.high = 1, highest  # what the feedback so far allows
        self.turns = 0
        self.messages: list[recipe.Message] = [
            {
                "role": "system",
                "content": f"Guess my number between 1 and {highest}. I say higher or lower. "
                "Reply with only a number.",
            },
            {"role": "user", "content": "What is your guess?"},
        ]

    async def initial_observation(self) -> list[recipe.Message]:
        return self.messages

    async def step(self, message: recipe.Message) -> MessageStepResult:
        guess = extract_guess(get_text_content(message))
        self.turns += 1
        self.guesses_left -= 1
        if guess == self.secret:
            return self._over(reward=1.0, solved=True)
        reward = 0.0 if guess is not None and self.low <= guess <= self.high else WASTED
        if self.guesses_left == 0:
            return self._over(reward, solved=False)
        self.messages = [*self.messages, message, {"role": "user", "content": self._hint(guess)}]
        return MessageStepResult(
            reward=reward,
            episode_done=False,
            next_messages=self.messages,
            metrics={"allowed_guess": float(reward == 0.0)},
        )

    def _hint(self, guess: int | None) -> str:
        """Feedback on a wrong guess; what it rules out is remembered."""
        if guess is None:
            return "Reply with only a number."
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
            return "Higher."
        self.high = min(self.high, guess - 1)
        return "Lower."

    def _over(self, reward: float, *, solved: bool) -> MessageStepResult:
        return MessageStepResult(
            reward=reward,
            episode_done=True,
            next_messages=[],
            metrics={"solved": float(solved), "guesses": self.turns},
        )


WASTED = -0.25
"""For a guess that the feedback has ruled out, or that is no number."""


def extract_guess(text: str) -> int | None:
    """The first number of an answer."""
    found = re.search(r"\d{1,9}", text)
    return int(found[0]) if found else None


# ------------------------------------------------------------------- settings


class SetupError(Exception):
    """Something to put right before anything can start."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run, as the environment asks for it."""

    base_model: str
    lora_rank: int
    steps: int
    batch_size: int
    group_size: int
    highest: int
    guesses: int
    max_tokens: int
    learning_rate: float
    log_root: str

    @property
    def log_path(self) -> str:
        model = self.base_model.rpartition("/")[2]
        return str(Path(self.log_root).expanduser() / f"mint-multi-turn-rl-{model}")


def read_settings(env: Mapping[str, str]) -> Settings:
    """Settings from the environment; an empty variable counts as unset.

    Raises:
        SetupError: naming the variable whose value cannot be.
    """

    def whole(name: str, default: int, lowest: int = 1) -> int:
        text = env.get(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < lowest:
            raise SetupError(f"{name}={text!r}: give a whole number, {lowest} or more.")
        return int(text)

    def positive(name: str, default: float) -> float:
        text = env.get(name) or str(default)
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise SetupError(f"{name}={text!r}: give a number above 0.")
        return value

    return Settings(
        base_model=env.get("MINT_BASE_MODEL") or "Qwen/Qwen3-0.6B",
        lora_rank=whole("MINT_LORA_RANK", 16),
        steps=whole("MINT_MULTI_TURN_STEPS", 20),
        batch_size=whole("MINT_MULTI_TURN_BATCH", 4),
        # Alone in its group, an attempt is its own mean and teaches nothing.
        group_size=whole("MINT_MULTI_TURN_GROUP", 8, lowest=2),
        highest=whole("MINT_MULTI_TURN_HIGHEST", 10, lowest=2),
        guesses=whole("MINT_MULTI_TURN_GUESSES", 4),
        max_tokens=whole("MINT_MULTI_TURN_MAX_TOKENS", 16),
        learning_rate=positive("MINT_MULTI_TURN_LR", 1e-4),
        log_root=env.get("MINT_LOG_ROOT") or str(recipe.cli_utils.runs_path()),
    )


# ------------------------------------------------------------------- the data


@dataclass(frozen=True)
class GuessingGroupBuilder(recipe.rl.types.EnvGroupBuilder):
    """Several attempts at the same number."""

    secret: int
    settings: Settings
    renderer_name: str

    async def make_envs(self) -> Sequence[EnvFromMessageEnv]:
        one = self.settings
        tokenizer = get_tokenizer(one.base_model)
        renderer = recipe.renderers.get_renderer(self.renderer_name, tokenizer)
        return [
            EnvFromMessageEnv(
                renderer=renderer,
                message_env=GuessingEnv(self.secret, one.highest, one.guesses),
                max_trajectory_tokens=1024,
                max_generation_tokens=one.max_tokens,
            )
            for _ in range(one.group_size)
        ]


class GuessingDataset(recipe.rl.types.RLDataset):
    """Batch i has the same numbers whenever it is asked for, so a run can resume."""

    def __init__(self, settings: Settings, renderer_name: str) -> None:
        self.settings = settings
        self.renderer_name = renderer_name

    def get_batch(self, index: int) -> Sequence[GuessingGroupBuilder]:
        rng = random.Random(f"numbers of batch {index}")
        return [
            GuessingGroupBuilder(
                rng.randint(1, self.settings.highest), self.settings, self.renderer_name
            )
            for _ in range(self.settings.batch_size)
        ]

    def __len__(self) -> int:
        return self.settings.steps


@chz.chz
class GuessingDatasetBuilder(recipe.rl.types.RLDatasetBuilder):
    settings: Settings
    renderer_name: str

    async def __call__(self) -> tuple[GuessingDataset, None]:
        return GuessingDataset(self.settings, self.renderer_name), None


# ------------------------------------------------------------------- the run


def make_config(
    settings: Settings, renderer_name: str, service_client: Any
) -> recipe.rl.train.Config:
    return recipe.rl.train.Config(
        learning_rate=settings.learning_rate,
        dataset_builder=GuessingDatasetBuilder(settings=settings, renderer_name=renderer_name),
        model_name=settings.base_model,
        renderer_name=renderer_name,
        lora_rank=settings.lora_rank,
        max_tokens=settings.max_tokens,
        max_steps=settings.steps,
        save_every=10,
        log_path=settings.log_path,
        service_client=service_client,
    )


def print_banner(settings: Settings, renderer_name: str) -> None:
    print(f"Model:      {settings.base_model}")
    print(f"Renderer:   {renderer_name}")
    print(f"Game:       1 to {settings.highest}, {settings.guesses} guesses")
    print(
        f"Steps:      {settings.steps} of {settings.batch_size} games x "
        f"{settings.group_size} attempts"
    )
    print(f"Log path:   {settings.log_path}")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def run(settings: Settings) -> None:
    """Train; a run that is complete is left as it is.

    Raises:
        SetupError: the server has not the model; with those that it has.
    """
    metadata = {"recipe_name": "multi_turn_rl"}
    async with await Service.connect(base_url=None, user_metadata=metadata) as service:
        models = await service.supported_models()
        print(f"Server supports {len(models)} models", flush=True)
        if settings.base_model not in models:
            raise SetupError(
                f"MINT_BASE_MODEL={settings.base_model}: this server offers "
                f"{', '.join(models) or 'nothing'}."
            )
        renderer_name = recipe.get_recommended_renderer_name(settings.base_model)
        print_banner(settings, renderer_name)
        print("Starting RL training loop...", flush=True)
        await recipe.rl.train.main(config=make_config(settings, renderer_name, service.client))
    print("Training complete.")
    log(f"To look at it: mint runs show {settings.log_path} --html run.html")


def main() -> int:
    load_dotenv(Path.cwd() / ".env")
    try:
        asyncio.run(run(read_settings(os.environ)))
    except (SetupError, mint.ConfigError, recipe.exceptions.ConfigurationError) as error:
        log(f"Cannot start: {error}")
        return 2
    except (mint.MintError, mint.TinkerError) as error:
        log(f"Failed: {str(error).split(' for self.request_id=')[0]}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
