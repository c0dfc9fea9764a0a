"""Turns that continue each other are one sequence: read once, trained on once.

A turn continues the sequence if its prompt begins with all of it, element by element. The sequence
is then that prompt and what was sampled after it, and the episode becomes one datum. Where a
renderer rewrites history, an env returns the increment alone or a tokenizer splits the model's own
text another way, a new sequence begins.

An element is a token, or an image: opaque, and equal only to an identical one. Positions are what
the model sees: one for a token, as many as it stands for for an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinker import types

from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.types import PARSE_ERROR_MASKED_METRIC_KEY, Trajectory, Transition

Run: TypeAlias = Sequence[int] | list[types.ModelInputChunk]
"""Elements of one chunk: tokens, or one image."""


@dataclass(frozen=True)
class Turn:
    """Where one action lies in its sequence, in positions."""

    prompt_start: int
    """Where the part of its prompt begins that the sequence did not have yet."""
    start: int
    """Of its first sampled token."""
    action: TokensWithLogprobs
    is_trained: bool

    @property
    def stop(self) -> int:
        """Behind its last sampled token."""
        return self.start + len(self.action.tokens)


@dataclass
class MergedSequence:
    """One or more turns, each token once: the last one's prompt and action, which hold the others'.

    The prompt's chunks are the transition's own. Members of a group usually show the same ones, and
    copying a long prompt for each would take longer than all the rest of making data.
    """

    chunks: list[types.ModelInputChunk]
    """Of the last prompt."""
    action: list[int]
    """The last one."""
    turns: list[Turn]
    length: int
    """In positions."""

    def drop_opaque_end(self) -> None:
        """Cut images off the end: the last element is a target, and no image can be one."""
        while self.chunks and not self.action and not _has_tokens(self.chunks[-1]):
            self.length -= _length(self.chunks.pop())


def merge_turns(trajectory: Trajectory) -> list[MergedSequence]:
    """The sequences of an episode: one, unless a prompt did not continue what went before.

    Linear in what the prompts hold: each is compared with the sequence once, and a chunk that it
    shares with the prompt before is not even read.

    Raises:
        DataValidationError: an image does not say how many tokens it stands for.
    """
    sequences: list[MergedSequence] = []
    for transition in trajectory.transitions:
        if not sequences or not _continues(transition.ob, sequences[-1]):
            sequences.append(MergedSequence([], [], [], 0))
        _add(sequences[-1], transition)
    return sequences


def _add(sequence: MergedSequence, transition: Transition) -> None:
    start = sum(map(_length, transition.ob.chunks))
    is_trained = not transition.metrics.get(PARSE_ERROR_MASKED_METRIC_KEY)
    turn = Turn(sequence.length, start, transition.ac, is_trained)
    sequence.turns.append(turn)
    sequence.chunks, sequence.action = list(transition.ob.chunks), transition.ac.tokens
    sequence.length = turn.stop


def _continues(prompt: types.ModelInput, sequence: MergedSequence) -> bool:
    """Whether `prompt` begins with all of `sequence`, however either is cut into chunks."""
    left = [_run(chunk) for chunk in reversed(prompt.chunks)]
    for known in (*map(_run, sequence.chunks), sequence.action):
        while known:
            if not left:
                return False
            new = left.pop()
            if new is known:
                break
            under = min(len(new), len(known))
            if _head(new, under) != _head(known, under):
                return False
            known = known[under:]
            if under < len(new):
                left.append(new[under:])
    return True


def _head(run: Run, length: int) -> Run:
    """The first elements; a whole run is not copied."""
    return run if length == len(run) else run[:length]


def _run(chunk: types.ModelInputChunk) -> Run:
    if not isinstance(chunk, types.EncodedTextChunk):
        return [chunk]
    tokens = chunk.tokens
    return tokens if isinstance(tokens, list) else list(tokens)


def _has_tokens(chunk: types.ModelInputChunk) -> bool:
    return isinstance(chunk, types.EncodedTextChunk) and bool(chunk.tokens)


def _length(chunk: types.ModelInputChunk) -> int:
    try:
        return chunk.length
    except ValueError as error:
        raise DataValidationError(
            f"an {chunk.type} chunk of a prompt does not say how many tokens it stands for, so "
            "nothing after it has a known position. Set its expected_tokens."
        ) from error
