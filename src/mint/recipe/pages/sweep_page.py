"""A sweep as one page: curves of all configurations together, their numbers, their health."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mint.recipe.exceptions import RecipeError
from mint.recipe.pages.charts import Chart, Curve, draw, smoothed
from mint.recipe.pages.rendering import number, render
from mint.recipe.pages.run_page import Tile
from mint.recipe.pages.run_record import REWARD, RunRecord, env_names, read_run
from mint.recipe.stores.sweep_record import Entry, State, SweepRecord, columns_of

_SHARED = {
    "Entropy, nats per token": "optim/entropy",
    "KL to the reference, nats per token": "kl_policy_base",
    "Tokens per answer": "env/all/ac_tokens_per_turn",
    "Groups with unequal rewards, share": "env/all/by_group/frac_mixed",
    "Episodes cut at max_tokens, share": "env/all/frac/stop/max_tokens",
}


@dataclass(frozen=True)
class Line:
    """One configuration in the table."""

    name: str
    color: int | None
    """Of its curve; None if it has none."""
    settings: Sequence[str]
    state: str
    steps: int
    numbers: Sequence[str]
    """First, last and best mean reward, then what the environments measure, last."""
    health: Sequence[str]
    is_healthy: bool
    log_path: str
    is_best: bool


@dataclass(frozen=True)
class SettingMean:
    """Mean of the last rewards over all configurations with one value of one setting."""

    setting: str
    value: str
    configurations: int
    reward: float


@dataclass(frozen=True)
class SweepPage:
    """What the template gets."""

    title: str
    tiles: Sequence[Tile]
    main_chart: Chart | None
    charts: Sequence[Chart]
    columns: Sequence[str]
    measures: Sequence[str]
    lines: Sequence[Line]
    means: Sequence[SettingMean]


def sweep_page(record: SweepRecord) -> str:
    """The page of a sweep, as far as it has come."""
    runs = {one.name: _read(one) for one in record.entries}
    shown = {name: run for name, run in runs.items() if run is not None and run.rows}
    measures = list(dict.fromkeys(name for run in shown.values() for name in env_names(run)))
    page = SweepPage(
        title=record.title,
        tiles=list(_tiles(record, shown)),
        main_chart=_chart("Mean reward per episode", REWARD, shown, width=832, height=340),
        charts=list(_charts(measures, shown)),
        columns=columns_of(record.entries),
        measures=measures,
        lines=list(_lines(record, shown, measures)),
        means=list(_means(record.entries, shown)),
    )
    return render("sweep.html.j2", page=page)


def _read(entry: Entry) -> RunRecord | None:
    """The run of a configuration, or None where there is nothing to read yet."""
    try:
        return read_run(Path(entry.log_path))
    except (RecipeError, OSError):
        return None


def _tiles(record: SweepRecord, runs: Mapping[str, RunRecord]) -> Iterator[Tile]:
    states = [one.state for one in record.entries]
    yield Tile("Configurations finished", f"{states.count(State.finished)} of {len(states)}")
    if failed := states.count(State.failed):
        yield Tile("failed", str(failed))
    if (best := _best(runs)) is not None:
        yield Tile("Best mean reward, last step", number(runs[best].latest(REWARD)), best)


def _best(runs: Mapping[str, RunRecord]) -> str | None:
    known = {name: run.latest(REWARD) for name, run in runs.items()}
    rewards = {name: value for name, value in known.items() if value is not None}
    return max(rewards, key=lambda name: rewards[name], default=None)


def _charts(measures: Sequence[str], runs: Mapping[str, RunRecord]) -> Iterator[Chart]:
    keys = {name: f"env/all/{name}" for name in measures} | _SHARED
    for title, key in keys.items():
        chart = _chart(title, key, runs, shows_zero=True)
        if chart is not None:
            yield chart


def _chart(title: str, key: str, runs: Mapping[str, RunRecord], **looks: Any) -> Chart | None:
    """One curve per run, in the same colour on every chart; of long ones the running mean alone."""
    curves = [smoothed(Curve(name, run.series(key)))[-1] for name, run in runs.items()]
    return draw(title, curves, keeps_colors=True, **looks)


def _lines(
    record: SweepRecord, runs: Mapping[str, RunRecord], measures: Sequence[str]
) -> Iterator[Line]:
    columns, best = columns_of(record.entries), _best(runs)
    colors = {name: i for i, name in enumerate(runs)}
    for entry in record.entries:
        run = runs.get(entry.name)
        health, is_healthy = _health(entry, run)
        yield Line(
            name=entry.name,
            color=colors.get(entry.name),
            settings=[_text(entry.settings.get(column)) for column in columns],
            state=entry.state.value,
            steps=len(run.steps) if run else 0,
            numbers=list(_numbers(run, measures)),
            health=health,
            is_healthy=is_healthy,
            log_path=entry.log_path,
            is_best=entry.name == best and len(runs) > 1,
        )


def _health(entry: Entry, run: RunRecord | None) -> tuple[Sequence[str], bool]:
    if entry.error is not None:
        return [entry.error], False
    if run is None:
        return [], True
    return run.health.lines(), run.health.is_healthy


def _numbers(run: RunRecord | None, measures: Sequence[str]) -> Iterator[str]:
    rewards = [value for _, value in run.series(REWARD)] if run else []
    yield number(rewards[0] if rewards else None)
    yield number(rewards[-1] if rewards else None)
    yield number(max(rewards, default=None))
    for name in measures:
        yield number(run.latest(f"env/all/{name}") if run else None)


def _means(entries: Sequence[Entry], runs: Mapping[str, RunRecord]) -> Iterator[SettingMean]:
    """What each value of a setting came to, over everything else; only settings that vary."""
    for setting in columns_of(entries):
        by_value: dict[str, list[float]] = {}
        for entry in entries:
            run = runs.get(entry.name)
            reward = run.latest(REWARD) if run else None
            if reward is not None and setting in entry.settings:
                by_value.setdefault(_text(entry.settings[setting]), []).append(reward)
        if len(by_value) > 1:
            for value, rewards in by_value.items():
                yield SettingMean(setting, value, len(rewards), sum(rewards) / len(rewards))


def _text(value: object) -> str:
    return "–" if value is None else str(value)
