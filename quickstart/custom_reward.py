"""Teach a language model arithmetic with a reward written in plain Python.

The server samples and trains; the reward never leaves this file. Each step: every question is
answered by a group of samples, each answer gets a reward in [0, 1], and what is better than its
group's mean is made more likely (importance_sampling, advantage = reward - mean of the group).

    python quickstart/custom_reward.py

Without MINT_BASE_URL a local server starts by itself. Settings come from the environment or from
a .env file beside this script or in the current folder (see .env.example):

    MINT_BASE_URL, MINT_API_KEY       the server; unset: the embedded one
    MINT_BASE_MODEL                   Qwen/Qwen3-0.6B
    MINT_LORA_RANK                    16
    MINT_CUSTOM_REWARD_STEPS          8      training steps
    MINT_CUSTOM_REWARD_BATCH          8      questions a step
    MINT_CUSTOM_REWARD_GROUP          6      answers a question
    MINT_CUSTOM_REWARD_LR             2e-5   learning rate of Adam
    MINT_CUSTOM_REWARD_MAX_TOKENS     16     longest answer
    MINT_CUSTOM_REWARD_TEMPERATURE    0.8    how varied the answers are
    MINT_CUSTOM_REWARD_SEED           0      of questions, adapter and sampling

Exit codes: 0 trained and saved; 1 the server or the training failed on the way; 2 nothing was
started, because a setting, the server or the base model is not as it should be; 130 interrupted.
"""

import math
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from dotenv import load_dotenv

import mint
from mint import types

# ---------------------------------------------------------------- the reward


@dataclass(frozen=True)
class RewardBreakdown:
    """A reward and its parts; `total` is their sum, in [0, 1]."""

    total: float
    format_reward: float
    """0.2 for an answer with an integer in it."""
    distance_reward: float
    """0 to 0.5, the closer the better."""
    exact_bonus: float
    """0.3 for the right answer."""


def extract_prediction(response: str) -> int | None:
    """The first integer in the response, with its sign; None if there is none."""
    # Models write a true minus too. Thirty digits are enough to be wrong by any measure, and more
    # of them could overflow the division in the reward.
    found = re.search(r"[-+]?\d{1,30}", response.replace("\u2212", "-"))
    return int(found[0]) if found else None


def compute_reward_breakdown(response: str, correct_answer: int) -> RewardBreakdown:
    prediction = extract_prediction(response)
    if prediction is None:
        return RewardBreakdown(total=0.0, format_reward=0.0, distance_reward=0.0, exact_bonus=0.0)

    format_reward = 0.2
    error = abs(prediction - correct_answer)
    distance_scale = max(abs(correct_answer), 20)
    closeness = max(0.0, 1.0 - min(error / distance_scale, 1.0))
    distance_reward = 0.5 * closeness
    exact_bonus = 0.3 if prediction == correct_answer else 0.0
    total = min(1.0, format_reward + distance_reward + exact_bonus)
    return RewardBreakdown(total, format_reward, distance_reward, exact_bonus)


# ------------------------------------------------------------------ the task


@dataclass(frozen=True)
class Task:
    prompt: str
    answer: int


def make_task(rng: random.Random) -> Task:
    """A sum of two numbers of two digits."""
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    return Task(f"Question: What is {a} + {b}?\nAnswer:", a + b)


# ------------------------------------------------------------------ settings


class SetupError(Exception):
    """Something to put right before anything can start."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run, as the environment asks for it."""

    base_model: str
    lora_rank: int
    steps: int
    batch: int
    group: int
    learning_rate: float
    max_tokens: int
    temperature: float
    seed: int


def read_settings(env: Mapping[str, str]) -> Settings:
    """Settings from the environment; an empty variable counts as unset.

    Raises:
        SetupError: naming the variable whose value cannot be.
    """

    def whole(name: str, default: int, lowest: int) -> int:
        text = env.get(name) or str(default)
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < lowest:
            raise SetupError(f"{name}={text!r}: give a whole number, {lowest} or more.")
        return int(text)

    def positive(name: str, default: float) -> float:
        text = env.get(name) or str(default)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise SetupError(f"{name}={text!r}: give a number above 0.")
        return value

    return Settings(
        base_model=env.get("MINT_BASE_MODEL") or "Qwen/Qwen3-0.6B",
        lora_rank=whole("MINT_LORA_RANK", 16, lowest=1),
        steps=whole("MINT_CUSTOM_REWARD_STEPS", 8, lowest=1),
        batch=whole("MINT_CUSTOM_REWARD_BATCH", 8, lowest=1),
        # Alone in its group, an answer is its own mean and teaches nothing.
        group=whole("MINT_CUSTOM_REWARD_GROUP", 6, lowest=2),
        learning_rate=positive("MINT_CUSTOM_REWARD_LR", 2e-5),
        max_tokens=whole("MINT_CUSTOM_REWARD_MAX_TOKENS", 16, lowest=1),
        temperature=positive("MINT_CUSTOM_REWARD_TEMPERATURE", 0.8),
        seed=whole("MINT_CUSTOM_REWARD_SEED", 0, lowest=0),
    )


# ----------------------------------------------------------------- preflight


def is_mint_server(env: Mapping[str, str]) -> bool:
    """Whether the configured server is a MinT one; another Tinker-compatible server will do too.

    Raises:
        SetupError: nothing answers there, or it refuses the key.
    """
    url = env.get("MINT_BASE_URL") or env.get("TINKER_BASE_URL")
    key = env.get("MINT_API_KEY") or env.get("TINKER_API_KEY")
    if not url:
        return True  # the embedded server, which the client starts or joins
    try:
        answer = httpx.get(
            url.rstrip("/") + "/api/v1/mint/server",
            headers={"X-API-Key": key} if key else {},
            timeout=10,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SetupError(
            f"no server answers at {url} ({error}). Start one with `mint serve`, correct "
            "MINT_BASE_URL, or unset it (and MINT_API_KEY) to use the embedded server."
        ) from None
    if key and answer.status_code in (401, 403):
        raise SetupError(
            f"{url} refuses the API key. Set MINT_API_KEY to one it knows; its operator makes "
            "them with `mint keys create`."
        )
    return answer.status_code != 404


def create_training_client(settings: Settings) -> mint.TrainingClient:
    """A new adapter on the base model.

    Raises:
        SetupError: the server does not offer the model, with what it does offer.
    """
    service = mint.ServiceClient()
    try:
        return service.create_lora_training_client(
            base_model=settings.base_model, rank=settings.lora_rank, seed=settings.seed
        ).result()
    except mint.MintError as error:  # it did not get as far as the model
        raise SetupError(str(error)) from error
    except mint.TinkerError as error:
        offered = mint.RestClient().get_server_capabilities().result().supported_models
        names = ", ".join(model.model_name or "?" for model in offered) or "nothing"
        raise SetupError(
            f"cannot train MINT_BASE_MODEL={settings.base_model}: {plain(error)}\n"
            f"This server offers: {names}."
        ) from error


# ------------------------------------------------------------------ training


@dataclass(frozen=True)
class Group:
    """One question with all its answers and their rewards."""

    prompt_tokens: list[int]
    sequences: Sequence[types.SampledSequence]
    rewards: list[RewardBreakdown]


def sample_groups(
    sampler: mint.SamplingClient,
    tokenizer: Any,
    tasks: Sequence[Task],
    step: int,
    settings: Settings,
) -> list[Group]:
    """Answer every task `settings.group` times. All requests are sent before the first is
    awaited, so the server works on them together."""
    prompts = [tokenizer.encode(task.prompt, add_special_tokens=False) for task in tasks]
    futures = [
        sampler.sample(
            types.ModelInput.from_ints(prompt),
            num_samples=settings.group,
            sampling_params=types.SamplingParams(
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                stop=["\n"],
                seed=(settings.seed * 1_000_003 + step) * settings.batch + i,
            ),
        )
        for i, prompt in enumerate(prompts)
    ]
    groups = []
    for task, prompt, future in zip(tasks, prompts, futures, strict=True):
        sequences = future.result().sequences
        answers = [tokenizer.decode(s.tokens, skip_special_tokens=True) for s in sequences]
        rewards = [compute_reward_breakdown(answer, task.answer) for answer in answers]
        groups.append(Group(prompt, sequences, rewards))
    return groups


def make_datums(group: Group) -> list[types.Datum]:
    """What the group teaches; nothing if all its rewards are equal."""
    group_rewards = [reward.total for reward in group.rewards]
    if max(group_rewards) - min(group_rewards) < 1e-9:
        return []
    mean_reward = sum(group_rewards) / len(group_rewards)
    advantages = [reward - mean_reward for reward in group_rewards]
    return [
        make_datum(group.prompt_tokens, sequence, advantage)
        for sequence, advantage in zip(group.sequences, advantages, strict=True)
    ]


def make_datum(
    prompt_tokens: list[int], sequence: types.SampledSequence, advantage: float
) -> types.Datum:
    """One answer as a training example: position i predicts token i + 1, and the positions that
    predict the prompt's own tokens carry zeros."""
    tokens = prompt_tokens + sequence.tokens
    prompt_zeros = [0.0] * (len(prompt_tokens) - 1)

    def floats(values: list[float]) -> types.TensorData:
        return types.TensorData.from_numpy(np.asarray(prompt_zeros + values, dtype=np.float32))

    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.asarray(tokens[1:], dtype=np.int64)),
            "logprobs": floats(sequence.logprobs or []),
            "advantages": floats([advantage] * len(sequence.tokens)),
        },
    )


def train(client: mint.TrainingClient, settings: Settings, loss_config: dict | None) -> list[float]:
    """Run all steps and return the mean reward of each."""
    tokenizer = client.get_tokenizer()
    rng = random.Random(settings.seed)
    curve = []
    for step in range(1, settings.steps + 1):
        started = time.monotonic()
        sampler = client.save_weights_and_get_sampling_client().result()
        tasks = [make_task(rng) for _ in range(settings.batch)]
        groups = sample_groups(sampler, tokenizer, tasks, step, settings)
        sampled = time.monotonic()

        training_datums = [datum for group in groups for datum in make_datums(group)]
        if training_datums:
            # Sent together, then awaited: the server need not wait for us in between.
            passed = client.forward_backward(
                training_datums, loss_fn="importance_sampling", loss_fn_config=loss_config
            )
            stepped = client.optim_step(types.AdamParams(learning_rate=settings.learning_rate))
            passed.result()
            stepped.result()

        rewards = [reward for group in groups for reward in group.rewards]
        avg_reward = sum(reward.total for reward in rewards) / len(rewards)
        exact_rate = sum(reward.exact_bonus > 0 for reward in rewards) / len(rewards)
        format_rate = sum(reward.format_reward > 0 for reward in rewards) / len(rewards)
        print(
            f"Step {step}: avg_reward={avg_reward:.3f}, exact_rate={exact_rate:.3f}, "
            f"format_rate={format_rate:.3f}, datums={len(training_datums)}",
            flush=True,
        )
        log(
            f"  {step}/{settings.steps}: {len(rewards)} answers in {sampled - started:.1f} s, "
            f"trained in {time.monotonic() - sampled:.1f} s"
        )
        curve.append(avg_reward)
    return curve


# -------------------------------------------------------------------- output


def plain(error: Exception) -> str:
    """What the server said, without the request's number and type that the SDK puts behind it."""
    return str(error).split(" for self.request_id=")[0]


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def text_plot(curve: Sequence[float], height: int = 8) -> str:
    """The curve in characters, one column a step, scaled from its lowest to its highest value."""
    low, high = min(curve), max(curve)
    span = (high - low) or 1.0
    rows = [round((value - low) / span * (height - 1)) for value in curve]
    lines = [
        f"{low + span * row / (height - 1):6.2f} |"
        + "".join(" *" if r == row else "  " for r in rows)
        for row in reversed(range(height))
    ]
    return "\n".join([*lines, " " * 7 + "+" + "--" * len(curve), f"{'step 1':>14} to {len(curve)}"])


def run() -> None:
    settings = read_settings(os.environ)
    # A MinT server is told the temperature of the samples, so that its ratios are exact; other
    # servers do not know this key.
    loss_config = {"temperature": settings.temperature} if is_mint_server(os.environ) else None
    client = create_training_client(settings)
    log(
        f"{settings.base_model}, LoRA rank {settings.lora_rank}: {settings.steps} steps of "
        f"{settings.batch} questions x {settings.group} answers, "
        f"learning rate {settings.learning_rate:g}"
    )
    curve = train(client, settings, loss_config)

    name = f"custom-reward-{settings.steps}"
    saved = client.save_state(name)
    for_sampling = client.save_weights_for_sampler(name)
    print("\navg_reward\n" + text_plot(curve))
    print(f"Saved: {saved.result().path}")
    question = make_task(random.Random(settings.seed + 1)).prompt
    print("Ask the trained model:")
    print(
        f"  {mint_command()} sample --checkpoint {for_sampling.result().path} "
        f"--max-tokens {settings.max_tokens} --stop $'\\n' --temperature 0 ${question!r}"
    )


def mint_command() -> str:
    """How `mint` is called from here: by its name if a shell finds it, else by its path."""
    beside_python = Path(sys.executable).with_name("mint")
    if shutil.which("mint") or not beside_python.exists():
        return "mint"
    here = Path.cwd()
    return str(
        beside_python.relative_to(here) if beside_python.is_relative_to(here) else beside_python
    )


def main() -> int:
    load_dotenv(Path(__file__).with_name(".env"))
    load_dotenv(Path.cwd() / ".env")
    try:
        run()
    except (SetupError, mint.ConfigError) as error:
        log(f"Cannot start: {error}")
        return 2
    except (mint.MintError, mint.TinkerError) as error:
        log(f"Failed: {plain(error)}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
