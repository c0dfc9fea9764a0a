"""From a response to its Reward, whatever the adapter does: time limits, errors, places.

    place (at most max_concurrency) -> call (at most timeout_s) -> Reward, number or failure -> Reward

Limits of time begin once a place is free: how long a scoring waits says nothing about it, and with a
limit on both, one slow reward would fail all those behind it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mint import ModelInput
from mint.recipe.forks import forget_in_forks
from mint.recipe.rl.class_hints import say_once
from mint.recipe.visible_text import visible
from mint.rl_core.calls import Method, TimeIsUp, run, told_of
from mint.rl_core.context import ScoringContext
from mint.rl_core.limits import Limits
from mint.rl_core.places import Place, Places
from mint.rl_core.reward import FailedReward, Reward, is_number
from mint.rl_core.shapes import batch_shape_of, check_settings, shape_of

if TYPE_CHECKING:
    from mint.rl_core.adapter import RLAdapter

_log = logging.getLogger("mint.rl_core")

Pair = tuple[ModelInput, ModelInput]
"""Prompt and response."""

USUAL_SCORE = 10.0
"""Beyond it, a score is more likely a mistake than meant."""
NOTED = 200
"""Characters of a response in the note on an error."""


@dataclass(eq=False)
class AdapterPlaces:
    """The places of one adapter's calls. Batches have their own: an overridden `score_batch` may call
    `score`, and would otherwise wait for places that it holds itself."""

    single: Places = field(default_factory=Places)
    batch: Places = field(default_factory=Places)

    def __post_init__(self) -> None:
        forget_in_forks(self)

    def __reduce__(self) -> tuple[type["AdapterPlaces"], tuple[()]]:
        return AdapterPlaces, ()  # in another process, or of a deep copy, nothing runs yet

    def forget(self) -> None:
        self.single, self.batch = Places(), Places()


def places_of(adapter: "RLAdapter") -> AdapterPlaces:
    """The adapter's places, made when first needed: its class may have an __init__ of its own."""
    state = vars(adapter)
    places = state.get("_mint_places")
    if places is None:
        places = state.setdefault("_mint_places", AdapterPlaces())  # atomic: two threads get one
    return places


def share_places(adapter: "RLAdapter", of: "RLAdapter") -> None:
    """Let the adapter's scorings count as those of another, which it stands for."""
    vars(adapter)["_mint_places"] = places_of(of)


# ------------------------------------------------------------------ entries


async def score_one(
    adapter: "RLAdapter", prompt: ModelInput, response: ModelInput, context: ScoringContext
) -> Reward:
    """The Reward of one response, by the rules of its adapter.

    Raises:
        RuntimeError: so many earlier calls hang that this one is not begun.
        Exception: the scoring's own, unless `error_score` is set; with a note on where.
    """
    shape = shape_of(adapter)
    if shape.kind == "score_batch":
        return (await score_group(adapter, [(prompt, response)], [context]))[0]
    limits = _limits_of(adapter)
    named = {"context": context} if shape.takes_context else {}
    owner, name = adapter.speaks_for()
    method = Method(
        owner,
        name,
        lambda: getattr(adapter, shape.kind)(prompt, response, **named),
        needs_thread=limits.blocking and not shape.is_async,
    )

    def read(answer: Any) -> list[Reward]:
        return [as_reward(answer, method)]

    places = places_of(adapter).single
    return (await _scored(adapter, method, limits, places, [(prompt, response)], read))[0]


async def score_group(
    adapter: "RLAdapter", pairs: Sequence[Pair], contexts: Sequence[ScoringContext]
) -> list[Reward]:
    """The Rewards of several responses, in their order: each by itself, or by one call of a
    `score_batch` that the adapter's class has of its own.

    Such a call has the time limit of one scoring, and all its responses fail together.

    Raises:
        RuntimeError: so many earlier calls hang that this one is not begun.
        Exception: the first scoring's that fails, unless `error_score` is set; the rest is cancelled.
    """
    if not pairs:
        return []
    own = batch_shape_of(adapter)
    if own is None:
        return await adapter.score_batch(pairs, contexts)
    limits = _limits_of(adapter)
    named = {"contexts": list(contexts)} if own.takes_contexts else {}
    owner, _ = adapter.speaks_for()
    method = Method(
        owner,
        "score_batch",
        lambda: adapter.score_batch(list(pairs), **named),
        needs_thread=limits.blocking and not own.is_async,
    )

    def read(answer: Any) -> list[Reward]:
        return _as_rewards(answer, len(pairs), method)

    return await _scored(adapter, method, limits, places_of(adapter).batch, pairs, read)


def _limits_of(adapter: "RLAdapter") -> Limits:
    """The adapter's own settings, which may have changed since its class was created."""
    limits = Limits.of(adapter)
    owner, _ = adapter.speaks_for()
    check_settings(owner, limits)
    return limits


async def _scored(
    adapter: "RLAdapter",
    method: Method,
    limits: Limits,
    places: Places,
    pairs: Sequence[Pair],
    read: Callable[[Any], list[Reward]],
) -> list[Reward]:
    """What one call of the adapter comes to."""
    place = await _place(places, method, limits)
    try:
        rewards = read(await run(method, place, limits.timeout_s))
    except TimeIsUp:
        rewards = [_timed_out(method, limits)] * len(pairs)
    except Exception as error:
        if limits.error_score is None:
            with suppress(Exception):  # an error that takes no note is raised without
                error.add_note(_note(adapter, method, pairs) + _advice(error))
            raise
        rewards = [_failed(method, limits.error_score, error)] * len(pairs)
    _hint_at_size(method, rewards)
    return [_seeded(adapter, reward) for reward in rewards]


async def _place(places: Places, method: Method, limits: Limits) -> Place:
    place = await places.take(limits.max_concurrency)
    if places.stuck >= limits.max_concurrency:
        place.end()
        raise RuntimeError(
            f"{places.stuck} calls of {method} had their time (timeout_s={limits.timeout_s}) and still "
            "run: a thread cannot be stopped from outside, and a coroutine may refuse. That is as many "
            f"as may run at once (max_concurrency={limits.max_concurrency}), so no more are begun. "
            "Give what they wait for a time limit of its own, such as the timeout of an HTTP client, or "
            "run it in a process that can be killed (mint.recipe.sandbox)."
        )
    return place


# ----------------------------------------------------------------- answers


def as_reward(answer: Any, method: Method) -> Reward:
    """A Reward as it is; a bare number as one.

    Raises:
        TypeError: the method returned something else.
        ValueError: a number that is not finite.
    """
    if isinstance(answer, Reward):
        return answer
    if is_number(answer):
        return Reward(answer)
    if answer is None:
        what = "nothing. Is a `return` missing on one of its ways?"
    elif isinstance(answer, tuple):
        what = f"a tuple of {len(answer)}. Write `return Reward(score, metadata)`."
    else:
        what = f"{type(answer).__name__} {answer!r:.60}."
    raise TypeError(f"{method} returned {what} It has to return a Reward, or a number.")


def _as_rewards(answer: Any, count: int, method: Method) -> list[Reward]:
    if isinstance(answer, str | bytes | dict | Reward) or not hasattr(answer, "__iter__"):
        raise TypeError(
            f"{method} returned {type(answer).__name__} {answer!r:.60}. It has to return a list with "
            "a Reward, or a number, for each pair."
        )
    rewards = [as_reward(one, method) for one in answer]
    if len(rewards) != count:
        raise ValueError(
            f"{method} returned {len(rewards)} rewards for {count} pairs. It has to return one for "
            "each, in their order."
        )
    return rewards


def _timed_out(method: Method, limits: Limits) -> FailedReward:
    say_once(
        _log, method.owner,
        "%s took longer than timeout_s=%s and counts as timeout_score=%s. Later ones are only counted.",
        method, limits.timeout_s, limits.timeout_score,
    )  # fmt: skip
    metadata = {"error": "timeout", "timeout_s": limits.timeout_s}
    return FailedReward(limits.timeout_score, metadata, kind="timeout")


def _failed(method: Method, score: float, error: Exception) -> FailedReward:
    told = told_of(error)
    say_once(
        _log, method.owner,
        "%s failed and counts as error_score=%s. Later ones are only counted. %s",
        method, score, visible(told),
    )  # fmt: skip
    return FailedReward(score, {"error": told}, kind="error")


def _hint_at_size(method: Method, rewards: Sequence[Reward]) -> None:
    largest = max((reward.score for reward in rewards), key=abs, default=0.0)
    if abs(largest) > USUAL_SCORE:
        say_once(
            _log, method.owner,
            "%s scored %s. Scores of this size make the updates as large: between -1 and 1 they suit "
            "the usual learning rates.", method, largest,
        )  # fmt: skip


def _seeded(adapter: "RLAdapter", reward: Reward) -> Reward:
    if adapter.seed is None:
        return reward
    seeded = copy(reward)  # not `replace`: a subclass may have an __init__ of its own
    object.__setattr__(seeded, "metadata", {"seed": adapter.seed, **reward.metadata})
    return seeded


def _note(adapter: "RLAdapter", method: Method, pairs: Sequence[Pair]) -> str:
    """Where an error comes from."""
    try:
        said = adapter.response_text(pairs[0][1])
    except Exception as error:  # no tokenizer, or one that cannot read these tokens
        said = f"(cannot be decoded: {type(error).__name__}) {pairs[0][1]!r}"
    which = "the response" if len(pairs) == 1 else f"{len(pairs)} responses, the first of them"
    return f"In {method} of the adapter {adapter.name!r}, on {which}: {visible(said[:NOTED])}"


def _advice(error: Exception) -> str:
    """What to do about a mistake that is made often."""
    if isinstance(error, AttributeError | TypeError) and ModelInput.__name__ in str(error):
        return (
            "\nPrompt and response are tokens: self.response_text(response) is the text, and "
            "response.to_ints() the list of them."
        )
    return ""
