"""One run as one page: did the reward rise, did it stay healthy, and what did the model say?"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mint.recipe.pages.charts import Chart, Curve, draw, smoothed
from mint.recipe.pages.rendering import number, render
from mint.recipe.pages.run_record import REWARD, RunRecord, env_names, read_run, some_transcripts
from mint.recipe.pages.transcript_page import ShownIteration, shown

_GROUPS_SHOWN, _EPISODES_SHOWN = 4, 8
"""Of each transcript: a page one can still scroll. The folder has the rest."""


@dataclass(frozen=True)
class Tile:
    """A number to be seen first."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Charts under a heading."""

    title: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class RunPage:
    """What the template gets."""

    name: str
    subtitle: str
    folder: str
    tiles: Sequence[Tile]
    health: Sequence[str]
    is_healthy: bool
    sections: Sequence[Section]
    iterations: Sequence[ShownIteration]
    checkpoints: Sequence[Mapping[str, Any]]
    settings: Sequence[tuple[str, str]]
    last_row: Sequence[tuple[str, Any]]


def run_page(folder: Path) -> str:
    """The page of a run folder, finished or not.

    Raises:
        DataFormatError: it is no run folder, or its files cannot be read.
    """
    record = read_run(folder)
    transcripts = some_transcripts(folder)
    page = RunPage(
        name=folder.resolve().name,
        subtitle=_subtitle(record),
        folder=str(folder.resolve()),
        tiles=list(_tiles(record)),
        health=record.health.lines(),
        is_healthy=record.health.is_healthy,
        sections=list(_sections(record)),
        iterations=[shown(one, _GROUPS_SHOWN, _EPISODES_SHOWN) for one in transcripts],
        checkpoints=record.checkpoints,
        settings=list(flat_settings(record.config)),
        last_row=list(record.last.items()),
    )
    return render("run.html.j2", page=page)


def flat_settings(config: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Fields of a config.json as (dotted name, value in JSON), None left out."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{within}{name}.")
        elif value is not None:
            yield f"{within}{name}", value if isinstance(value, str) else json.dumps(value)


def _subtitle(record: RunRecord) -> str:
    model = record.config.get("model_name", "model unknown")
    done = "finished" if record.is_finished else "not finished"
    return f"{model} · {len(record.steps)} steps · {done}"


def _tiles(record: RunRecord) -> Iterator[Tile]:
    rewards = record.series(REWARD)
    if rewards:
        (first_step, first), (last_step, last) = rewards[0], rewards[-1]
        best_step, best = max(rewards, key=lambda point: point[1])
        yield Tile("Mean reward, last step", number(last), f"step {last_step:.0f}")
        yield Tile("at the start", number(first), f"step {first_step:.0f}")
        yield Tile("at its best", number(best), f"step {best_step:.0f}")
    if (tested := record.latest(f"test/{REWARD}")) is not None:
        yield Tile("on the test set", number(tested))
    if (mixed := record.latest("env/all/by_group/frac_mixed")) is not None:
        yield Tile("Groups that teach", f"{mixed:.0%}", "unequal rewards, last step")
    if (sampled := record.latest("tokens/cumulative/sampled")) is not None:
        yield Tile("Tokens sampled", number(int(sampled)))
    if seconds := record.series("time/total"):
        total = sum(value for _, value in seconds)
        yield Tile("Time in steps", _duration(total), f"{total / len(seconds):.1f} s a step")


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 2:
        return f"{hours:.1f} h"
    return f"{minutes:.1f} min" if minutes >= 2 else f"{seconds:.1f} s"


@dataclass(frozen=True)
class _Drawn:
    """A chart of every run: names of its curves, and the metrics they show."""

    title: str
    keys: Mapping[str, str]
    shows_zero: bool = True


_BY_GROUP = _Drawn("Groups by their rewards, share", {
    "mixed: they teach": "env/all/by_group/frac_mixed",
    "all good": "env/all/by_group/frac_all_good",
    "all bad": "env/all/by_group/frac_all_bad",
})  # fmt: skip
_POLICY = (
    _Drawn("KL to the reference, nats per token", {"policy to base": "kl_policy_base"}, False),
    _Drawn("Sampler and trainer apart, nats per token", {
        "KL, first order": "optim/kl_sample_train_v1",
        "KL, second order": "optim/kl_sample_train_v2",
    }),
    _Drawn("Entropy, nats per token", {"entropy": "optim/entropy"}),
)  # fmt: skip
_LENGTHS = (
    _Drawn("Tokens per turn", {
        "answer": "env/all/ac_tokens_per_turn", "prompt": "env/all/ob_tokens_per_turn",
    }),
    _Drawn("Turns per episode", {"turns": "env/all/turns_per_episode"}),
)  # fmt: skip
_HEALTH = (
    _Drawn("Episodes that were spoilt, share", {
        "cut by length": "health/episodes_cut_by_length",
        "parse errors": "health/episodes_with_parse_errors",
        "no room to answer": "health/episodes_without_room",
        "over the context": "health/episodes_over_context",
        "out of time": "health/episodes_timed_out",
        "never graded": "health/episodes_never_graded",
    }),
    _Drawn("Without a signal, share", {
        "groups with equal rewards": "health/groups_with_equal_rewards",
        "datums without signal": "health/datums_without_signal",
    }),
    _Drawn("Sampler and trainer apart, nats", {
        "mean": "health/gap_mean", "largest": "health/gap_max",
    }),
    _Drawn("Ratios that ppo would clip, share", {"clipped": "health/ratios_clipped"}),
    _Drawn("Groups that failed", {"failed": "health/groups_failed"}),
)  # fmt: skip


def _sections(record: RunRecord) -> Iterator[Section]:
    """The charts that have something to show, under their headings."""
    measured = [_Drawn(name, {name: f"env/all/{name}"}, False) for name in env_names(record)]
    tags = [key for key in record.keys("env/") if key.endswith("/reward/total") and key != REWARD]
    by_tag = _Drawn(
        "Mean reward by tag",
        {key.removeprefix("env/").removesuffix("/reward/total"): key for key in tags},
        False,
    )
    stops = record.keys("env/all/frac/stop/")
    ends = _Drawn("How episodes ended, share", {key.rpartition("/")[2]: key for key in stops})
    sections = {
        "Reward": [_reward(record), *_charts(record, [by_tag, *measured, _BY_GROUP])],
        "Policy": _charts(record, _POLICY),
        "Lengths": _charts(record, [*_LENGTHS, ends]),
        "Health": _charts(record, _HEALTH, only_if_any=True),
        "Time": _charts(record, [_Drawn("Seconds per step", _spans(record))]),
    }
    for title, charts in sections.items():
        drawn = [chart for chart in charts if chart is not None]
        if drawn:
            yield Section(title, drawn)


def _reward(record: RunRecord) -> Chart | None:
    curves = smoothed(Curve("training, mean reward", record.series(REWARD)))
    if tested := record.series(f"test/{REWARD}"):
        curves.append(Curve("test set", tested))
    return draw("Mean reward per episode", curves)


def _charts(
    record: RunRecord, drawn: Sequence[_Drawn], *, only_if_any: bool = False
) -> list[Chart | None]:
    """The charts of these; with `only_if_any`, curves that are 0 throughout are left out, as of what
    did not happen there is nothing to see."""
    charts = []
    for one in drawn:
        curves = [Curve(name, record.series(key)) for name, key in one.keys.items()]
        shown = [c for c in curves if any(y for _, y in c.points) or (c.points and not only_if_any)]
        charts.append(draw(one.title, shown, shows_zero=one.shows_zero))
    return charts


def _spans(record: RunRecord) -> dict[str, str]:
    """The named parts of a step's time: what was called once, and sums of what ran side by side are
    left out, since they can be more than the step took."""
    names = ("total", "train", "compute_kl_penalty", "save_checkpoint", "run_evals")
    return {name: f"time/{name}" for name in names if record.series(f"time/{name}")}
