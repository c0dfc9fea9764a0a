"""Turns that continue each other are one sequence: read once, trained on once.

A turn continues the sequence if its prompt begins with all of it, element by element. Then only
what it adds has to be kept, and the episode becomes one datum. Where a renderer rewrites history, an
env returns the increment alone or a tokenizer splits the model's own text another way, a new
sequence begins.

An element is a token, or an image: opaque, and equal only to an identical one. Positions are what
the model sees: one for a token, as many as it stands for for an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tinker import types

from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.types import PARSE_ERROR_MASKED_METRIC_KEY, Trajectory, Transition

Opaque: TypeAlias = types.ModelInputChunk
Element: TypeAlias = int | Opaque
Run: TypeAlias = list[Element]
"""Of tokens alone, or of one image alone."""


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
    """Prompts and actions of one or more turns, each token once."""

    elements: list[Element] = field(default_factory=list)
    opaque_at: list[int] = field(default_factory=list)
    """Indices of the elements that are no tokens."""
    length: int = 0
    """In positions."""
    turns: list[Turn] = field(default_factory=list)

    def addition(self, prompt: types.ModelInput) -> list[Run] | None:
        """What a prompt has beyond this sequence; None if it does not begin with all of it."""
        known, at = self.elements, 0
        beyond: list[Run] = []
        for chunk in prompt.chunks:
            new = _run(chunk)
            under = min(len(new), len(known) - at)
            if at == 0 and under == len(known):
                is_same = _begins_with(new, known)  # the usual case: all text in one long chunk
            else:
                is_same = new[:under] == known[at : at + under]
            if not is_same:
                return None
            at += under
            if under < len(new):
                beyond.append(new[under:] if under else new)
        return beyond if at == len(known) else None

    def append(self, addition: Sequence[Run], transition: Transition) -> None:
        """Add a turn: what its prompt adds, then its action."""
        prompt_start = self.length
        for run in addition:
            self._extend(run)
        action = transition.ac
        is_trained = not transition.metrics.get(PARSE_ERROR_MASKED_METRIC_KEY)
        self.turns.append(Turn(prompt_start, self.length, action, is_trained))
        self._extend(action.tokens)  # type: ignore[arg-type]

    def _extend(self, run: Run) -> None:
        if len(run) == 1 and not isinstance(run[0], int):
            self.opaque_at.append(len(self.elements))
            self.length += _length(run[0])
        else:
            self.length += len(run)
        self.elements += run

    def drop_opaque_end(self) -> None:
        """Cut images off the end: the last element is a target, and no image can be one."""
        while self.opaque_at and self.opaque_at[-1] == len(self.elements) - 1:
            self.opaque_at.pop()
            self.length -= _length(self.elements.pop())

    def runs(self) -> list[list[int] | Opaque]:
        """The elements as stretches of tokens, and what lies between them."""
        runs: list[list[int] | Opaque] = []
        start = 0
        for index in (*self.opaque_at, len(self.elements)):
            if index > start:
                runs.append(self.elements[start:index])  # type: ignore[arg-type]
            if index < len(self.elements):
                runs.append(self.elements[index])  # type: ignore[arg-type]
            start = index + 1
        return runs


def merge_turns(trajectory: Trajectory) -> list[MergedSequence]:
    """The sequences of an episode: one, unless a prompt did not continue what went before.

    Linear in what the prompts hold: each is compared with the sequence once.

    Raises:
        DataValidationError: an image does not say how many tokens it stands for.
    """
    sequences: list[MergedSequence] = []
    for transition in trajectory.transitions:
        addition = sequences[-1].addition(transition.ob) if sequences else None
        if addition is None:
            sequences.append(MergedSequence())
            addition = [_run(chunk) for chunk in transition.ob.chunks]
        sequences[-1].append(addition, transition)
    return sequences


def _begins_with(longer: list[Element], start: list[Element]) -> bool:
    """Whether `longer` begins with all of `start`, which is as it was when this returns.

    `start` is made as long first, so that no long list is copied to be compared: copying 80k tokens
    takes longer than comparing them, where they are the same objects.
    """
    length = len(start)
    start += longer[length:]
    is_same = start == longer
    del start[length:]
    return is_same


def _run(chunk: types.ModelInputChunk) -> Run:
    if not isinstance(chunk, types.EncodedTextChunk):
        return [chunk]
    tokens = chunk.tokens
    return tokens if isinstance(tokens, list) else list(tokens)  # type: ignore[return-value]


def _length(chunk: Element) -> int:
    if isinstance(chunk, int):
        return 1
    try:
        return chunk.length
    except ValueError as error:
        raise DataValidationError(
            f"an {chunk.type} chunk of a prompt does not say how many tokens it stands for, so "
            "nothing after it has a known position. Set its expected_tokens."
        ) from error
