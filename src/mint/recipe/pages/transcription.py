"""Episodes in words: what a group's tokens say, with logprobs, rewards and advantages beside them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tinker import ModelInput
from tinker.types import EncodedTextChunk

from mint.recipe.rl.types import STOP_METRIC_PREFIX, Trajectory, TrajectoryGroup, Transition

SCHEMA_VERSION = 1
_LONGEST_CHARACTER = 8
"""Tokens that one character may be cut into; four bytes, and some tokenizers add a marker."""


class Decodes(Protocol):
    """All that is asked of a tokenizer here."""

    def decode(self, ids: list[int], /) -> str: ...


class Played(Protocol):
    """A group to be written down; the loop's own group is one."""

    @property
    def tags(self) -> Sequence[str]: ...

    @property
    def trajectory_group(self) -> TrajectoryGroup | None:
        """None: it failed, and is left out."""
        ...

    @property
    def advantages_G(self) -> Sequence[float] | np.ndarray | None:
        """Reward less the group's mean, a value per member; None where nothing is trained."""
        ...


@dataclass(frozen=True)
class TranscriptGroup:
    """A `Played` group outside the loop: an evaluation's, or a test's."""

    tags: Sequence[str]
    trajectory_group: TrajectoryGroup | None
    advantages_G: Sequence[float] | np.ndarray | None = None


@dataclass(frozen=True)
class Piece:
    """Sampled tokens that make text only together; almost always one."""

    text: str
    tokens: list[int]
    logprob: float | None
    """Of all of them, in nats; None if the sampler gave none."""


@dataclass(frozen=True)
class Turn:
    """One prompt and its answer."""

    prompt: str
    """What is new in the prompt since the last turn, or all of it if it does not extend that."""
    prompt_extends: bool
    prompt_tokens: int
    """Length of the whole prompt."""
    pieces: list[Piece]
    reward: float
    metrics: dict[str, float] = field(default_factory=dict)
    logs: dict[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Episode:
    """One member of a group."""

    total_reward: float
    final_reward: float
    advantage: float | None
    stop_reason: str | None
    turns: list[Turn]


@dataclass(frozen=True)
class GroupTranscript:
    """All attempts at one problem."""

    tags: list[str]
    episodes: list[Episode]


@dataclass(frozen=True)
class Transcript:
    """The groups of one iteration that were written down."""

    split: str
    """ "train" or "eval/<name>"."""
    iteration: int
    groups: list[GroupTranscript]


def read_transcript(path: Path) -> Transcript:
    """Read a `*_logtree.json` back.

    Raises:
        ValueError: it is no transcript of ours, or one of a later schema; the message says which.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {version}, and we read {SCHEMA_VERSION}")
        groups = [_group_from(one) for one in found.pop("groups")]
        return Transcript(groups=groups, **found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no transcript that can be read: {error}") from error


def transcribe(
    split: str, iteration: int, groups: Iterable[Played], tokenizer: Decodes
) -> Transcript:
    """The groups in words and numbers."""
    played = ((one.tags, one.trajectory_group, one.advantages_G) for one in groups)
    return Transcript(
        split,
        iteration,
        [_transcribe_group(t, g, a, tokenizer) for t, g, a in played if g is not None],
    )


def token_pieces(
    tokenizer: Decodes, tokens: Sequence[int], logprobs: Sequence[float] | None
) -> list[Piece]:
    """The tokens with the text that each adds.

    A character outside ASCII may be spread over several tokens: these stay together in one piece.
    Each piece is decoded behind the one before it, since some tokenizers drop the space in front
    of whatever comes first.
    """
    pieces: list[Piece] = []
    before: list[int] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        run = list(tokens[start:end])
        text = _added_text(tokenizer, before, run)
        is_whole = not text.endswith("\ufffd") or len(run) == _LONGEST_CHARACTER
        if is_whole or end == len(tokens):
            share = None if logprobs is None else float(sum(logprobs[start:end]))
            pieces.append(Piece(text, run, share))
            before, start = run, end
    return pieces


def _added_text(tokenizer: Decodes, before: list[int], run: list[int]) -> str:
    alone, together = tokenizer.decode(before) if before else "", tokenizer.decode(before + run)
    return together[len(alone) :] if together.startswith(alone) else tokenizer.decode(run)


def _transcribe_group(
    tags: Sequence[str],
    played: TrajectoryGroup,
    advantages_G: Sequence[float] | np.ndarray | None,
    tokenizer: Decodes,
) -> GroupTranscript:
    episodes = [
        Episode(
            total_reward=float(total),
            final_reward=float(final),
            advantage=None if advantages_G is None else float(advantages_G[i]),
            stop_reason=_stop_reason(trajectory),
            turns=_transcribe_turns(trajectory.transitions, tokenizer),
        )
        for i, (trajectory, total, final) in enumerate(
            zip(
                played.trajectories_G,
                played.get_total_rewards(),
                played.final_rewards_G,
                strict=True,
            )
        )
    ]
    return GroupTranscript([str(tag) for tag in tags], episodes)


def _stop_reason(trajectory: Trajectory) -> str | None:
    if trajectory.stop_reason is not None or not trajectory.transitions:
        return trajectory.stop_reason
    names = trajectory.transitions[-1].metrics
    found = (name for name in names if name.startswith(STOP_METRIC_PREFIX))
    return next((name.removeprefix(STOP_METRIC_PREFIX) for name in found), None)


def _transcribe_turns(transitions: Sequence[Transition], tokenizer: Decodes) -> list[Turn]:
    turns: list[Turn] = []
    seen: list[Any] = []
    for transition in transitions:
        prompt = list(_elements(transition.ob))
        extends = bool(seen) and prompt[: len(seen)] == seen
        new = prompt[len(seen) :] if extends else prompt
        action = transition.ac
        turns.append(
            Turn(
                prompt=_text(tokenizer, new),
                prompt_extends=extends,
                prompt_tokens=transition.ob.length,
                pieces=token_pieces(tokenizer, action.tokens, action.maybe_logprobs),
                reward=float(transition.reward),
                metrics={str(k): float(v) for k, v in transition.metrics.items()},
                logs={str(k): _plain(v) for k, v in transition.logs.items()},
            )
        )
        seen = prompt + list(action.tokens)
    return turns


def _elements(prompt: ModelInput) -> Iterable[Any]:
    """A prompt's tokens; whatever is no text stands for itself."""
    for chunk in prompt.chunks:
        if isinstance(chunk, EncodedTextChunk):
            yield from chunk.tokens
        else:
            yield chunk


def _text(tokenizer: Decodes, elements: Sequence[Any]) -> str:
    """Text of a prompt's elements, with [image] and the like where an element is no token."""
    parts, run = [], []
    for element in elements:
        if isinstance(element, int):
            run.append(element)
            continue
        parts += [tokenizer.decode(run)] if run else []
        parts.append(f"[{getattr(element, 'type', 'no text')}]")
        run = []
    return "".join([*parts, tokenizer.decode(run) if run else ""])


def _plain(value: object) -> str | float:
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return str(value)


def _group_from(found: Mapping[str, Any]) -> GroupTranscript:
    episodes = [
        Episode(**{**one, "turns": [_turn_from(turn) for turn in one["turns"]]})
        for one in found["episodes"]
    ]
    return GroupTranscript(list(found["tags"]), episodes)


def _turn_from(found: Mapping[str, Any]) -> Turn:
    return Turn(**{**found, "pieces": [Piece(**one) for one in found["pieces"]]})
