"""Transcripts for people: every sampled token, shaded by its advantage or by its logprob."""

import math
from dataclasses import dataclass, replace

from mint.recipe.pages.rendering import number, render
from mint.recipe.pages.transcription import Episode, GroupTranscript, Piece, Transcript, Turn

_FULL_SURPRISE = 6.0
"""Nats of a token at which its shade is strongest: a probability of 1 in 400."""


@dataclass(frozen=True)
class ShownToken:
    """A piece of text and how it looks. `style` is made of numbers only."""

    text: str
    kind: str
    style: str
    numbers: str


@dataclass(frozen=True)
class ShownTurn:
    """A prompt and its answer."""

    prompt_note: str
    prompt: str | None
    """None where the group shows it for all."""
    answer_note: str
    tokens: list[ShownToken]
    facts: str


@dataclass(frozen=True)
class ShownEpisode:
    """One member of a group."""

    heading: str
    turns: list[ShownTurn]
    is_open: bool


@dataclass(frozen=True)
class ShownGroup:
    """The attempts at one problem, or the first of them."""

    heading: str
    prompt: str | None
    """What all of them began with; None if they did not begin alike."""
    episodes: list[ShownEpisode]
    left_out: int


@dataclass(frozen=True)
class ShownIteration:
    """What the template gets of one transcript."""

    heading: str
    groups: list[ShownGroup]


def transcript_page(transcript: Transcript) -> str:
    """One iteration as a page of its own, nothing left out."""
    return render("transcripts.html.j2", shown=shown(transcript))


def shown(
    transcript: Transcript, most_groups: int = 10**9, most_episodes: int = 10**9
) -> ShownIteration:
    """A transcript in the form of the template.

    Advantages are shaded relative to the largest of the whole transcript, so that groups compare.
    """
    known = [
        abs(one.advantage)
        for group in transcript.groups
        for one in group.episodes
        if one.advantage is not None and math.isfinite(one.advantage)
    ]
    largest = max(known, default=0.0)
    groups = [
        _shown_group(i, group, largest, most_episodes)
        for i, group in enumerate(transcript.groups[:most_groups])
    ]
    return ShownIteration(f"{transcript.split}, step {transcript.iteration}", groups)


def _shown_group(index: int, group: GroupTranscript, largest: float, most: int) -> ShownGroup:
    rewards = [one.total_reward for one in group.episodes]
    mean = sum(rewards) / len(rewards) if rewards else math.nan
    tags = f" ({', '.join(group.tags)})" if group.tags else ""
    prompt = _shared_prompt(group)
    episodes = [
        _shown_episode(i, one, largest, prompt) for i, one in enumerate(group.episodes[:most])
    ]
    return ShownGroup(
        f"Group {index}{tags}: {len(rewards)} episodes, mean reward {mean:.3f}",
        prompt,
        episodes,
        max(0, len(rewards) - most),
    )


def _shared_prompt(group: GroupTranscript) -> str | None:
    first = {one.turns[0].prompt if one.turns else None for one in group.episodes}
    return first.pop() if len(first) == 1 and len(group.episodes) > 1 else None


def _shown_episode(
    index: int, episode: Episode, largest: float, shared_prompt: str | None
) -> ShownEpisode:
    facts = [f"Episode {index}", f"reward {number(episode.total_reward)}"]
    if episode.advantage is not None:
        facts.append(f"advantage {episode.advantage:+.3f}")
    if len(episode.turns) > 1:
        facts.append(f"{len(episode.turns)} turns")
    if episode.stop_reason is not None:
        facts.append(f"stopped: {episode.stop_reason}")
    turns = [
        _shown_turn(i, turn, episode.advantage, largest) for i, turn in enumerate(episode.turns)
    ]
    if turns and shared_prompt is not None:
        turns[0] = replace(turns[0], prompt=None)
    return ShownEpisode(" · ".join(facts), turns, is_open=index == 0)


def _shown_turn(index: int, turn: Turn, advantage: float | None, largest: float) -> ShownTurn:
    note = f"prompt of {turn.prompt_tokens} tokens"
    if turn.prompt_extends:
        note = f"turn {index}: what the prompt, now of {turn.prompt_tokens} tokens, adds"
    elif index > 0:
        note = f"turn {index}: a new prompt of {turn.prompt_tokens} tokens; it does not extend the last"
    facts = [f"reward {number(turn.reward)}"]
    facts += [f"{name} {number(value)}" for name, value in turn.metrics.items()]
    facts += [f"{name}: {value}" for name, value in turn.logs.items()]
    tokens = [_shown_token(piece, advantage, largest) for piece in turn.pieces]
    sampled = sum(len(piece.tokens) for piece in turn.pieces)
    answer_note = f"answer of {sampled} {'token' if sampled == 1 else 'tokens'}"
    return ShownTurn(note, turn.prompt, answer_note, tokens, " · ".join(facts))


def _shown_token(piece: Piece, advantage: float | None, largest: float) -> ShownToken:
    kinds, styles = ["t"], []
    if advantage and largest > 0 and math.isfinite(advantage):
        kinds.append("up" if advantage > 0 else "down")
        styles.append(f"--a:{abs(advantage) / largest:.2f}")
    numbers = f"token {', '.join(map(str, piece.tokens))}"
    if piece.logprob is not None and math.isfinite(piece.logprob):
        styles.append(f"--s:{min(1.0, max(0.0, -piece.logprob) / _FULL_SURPRISE):.2f}")
        probability = math.exp(min(0.0, piece.logprob))
        numbers += f", logprob {piece.logprob:.3f}, probability {probability:.3f}"
    if "\n" in piece.text:
        kinds.append("nl")
    return ShownToken(piece.text, " ".join(kinds), ";".join(styles or ["--s:0"]), numbers)
