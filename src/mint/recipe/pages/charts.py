"""Line charts as values: where ticks, curves and labels go. `templates/chart.html.j2` writes the SVG.

Pure geometry, so that a test can work a chart out by hand. Nothing here makes markup: whatever text
a chart carries is escaped where it is written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 210
"""Of a chart that stands beside others. In about these sizes it is shown, so that its letters are of
the size of the page's."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 10, 10, 28
_MOST_POINTS = 400
"""Points of a curve beyond which neighbours are averaged: a chart is 360 units wide."""
_MOST_DOTS = 40
"""Points up to which each gets a dot with its value to hover over."""

Points = Sequence[tuple[float, float]]
"""(step, value); a value that is no finite number leaves a gap."""


@dataclass(frozen=True)
class Curve:
    """One named series to be drawn."""

    name: str
    points: Points
    is_faint: bool = False
    """Drawn thin, behind: the raw values of a series whose mean is drawn over it."""


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place in the drawing, and what is written beside it."""

    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    """A point with its value in words."""

    x: float
    y: float
    label: str


@dataclass(frozen=True)
class Stroke:
    """A curve in the drawing's units."""

    name: str
    path: str
    dots: tuple[Dot, ...]
    is_faint: bool
    color: int
    """Which colour of the page's palette. A faint curve has that of the curve it lies behind."""


@dataclass(frozen=True)
class Chart:
    """Everything a template needs to write the SVG."""

    title: str
    summary: str
    """The chart in a sentence or two, for who cannot see it."""
    strokes: tuple[Stroke, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int
    height: int

    @property
    def left(self) -> int:
        return _LEFT

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def top(self) -> int:
        return _TOP

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM

    @property
    def legend(self) -> tuple[Stroke, ...]:
        """The strokes that need a name: none if there is only one."""
        named = tuple(stroke for stroke in self.strokes if not stroke.is_faint)
        return named if len(named) > 1 else ()


def draw(
    title: str,
    curves: Sequence[Curve],
    *,
    shows_zero: bool = False,
    keeps_colors: bool = False,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart | None:
    """A chart of these curves over steps; None if they have no finite value.

    Args:
        shows_zero: the vertical axis includes 0 (for shares, counts and lengths).
        keeps_colors: a curve without values uses its colour up, so that the same list of names has
            the same colours on several charts.
    """
    curves = [Curve(one.name, thin(one.points), one.is_faint) for one in curves]
    values = [y for one in curves for _, y in one.points if math.isfinite(y)]
    if not values:
        return None
    y_scale = _y_scale([*values, 0.0] if shows_zero else values, height - _BOTTOM)
    steps = [x for one in curves for x, _ in one.points]
    x_scale = _x_scale(steps, width - _RIGHT)
    strokes, color = [], 0
    for one in curves:
        has_values = any(math.isfinite(y) for _, y in one.points)
        if has_values:
            strokes.append(_stroke(one, x_scale, y_scale, color))
        color += (has_values or keeps_colors) and not one.is_faint
    return Chart(
        title=title,
        summary=" ".join(_in_words(one) for one in curves if one.points and not one.is_faint),
        strokes=tuple(strokes),
        x_ticks=tuple(
            Tick(x_scale.place(x), label(x)) for x in whole_ticks(min(steps), max(steps))
        ),
        y_ticks=tuple(Tick(y_scale.place(y), label(y)) for y in y_scale.ticks),
        width=width,
        height=height,
    )


def smoothed(curve: Curve) -> list[Curve]:
    """The curve itself if it is short; else its running mean, with the raw values faint behind.

    The window is a tenth of the points, at least 3, and is cut at the start: no value of the mean
    looks ahead.
    """
    finite = [(x, y) for x, y in curve.points if math.isfinite(y)]
    if len(finite) < 15:
        return [curve]
    window = max(3, len(finite) // 10)
    mean = []
    for i, (x, _) in enumerate(finite):
        near = [y for _, y in finite[max(0, i + 1 - window) : i + 1]]
        mean.append((x, sum(near) / len(near)))
    return [Curve(curve.name, curve.points, is_faint=True), Curve(curve.name, mean)]


def thin(points: Points, most: int = _MOST_POINTS) -> Points:
    """At most `most` points: means of equal runs of neighbours. A gap stays one only if whole."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    means = []
    for start in range(0, len(points), size):
        run = points[start : start + size]
        finite = [y for _, y in run if math.isfinite(y)]
        mean_x = sum(x for x, _ in run) / len(run)
        means.append((mean_x, sum(finite) / len(finite) if finite else math.nan))
    return means


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that cover [low, high], some `about` of them."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def whole_ticks(low: float, high: float) -> list[float]:
    """Whole numbers within [low, high], some six of them."""
    if high - low < 1:
        return [low]
    return [x for x in nice_ticks(low, high, about=6) if low <= x <= high and x == round(x)]


def label(value: float) -> str:
    """A number as one writes it beside an axis: at most four digits that count."""
    if value != 0 and not 1e-4 <= abs(value) < 1e5:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


@dataclass(frozen=True)
class _Scale:
    """From values to places in the drawing."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...] = ()

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def _x_scale(steps: Sequence[float], end: float) -> _Scale:
    low, high = min(steps), max(steps)
    if low == high:
        low, high = low - 1.0, high + 1.0
    return _Scale(low, high, _LEFT, end)


def _y_scale(values: Sequence[float], start: float) -> _Scale:
    """From the bottom upwards, between two ticks."""
    low, high = min(values), max(values)
    if low == high:  # a flat line runs through the middle
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    ticks = nice_ticks(low, high)
    return _Scale(ticks[0], ticks[-1], start, _TOP, tuple(ticks))


def _stroke(curve: Curve, x_scale: _Scale, y_scale: _Scale, color: int) -> Stroke:
    commands, pen_is_down = [], False
    dots = []
    for x, y in curve.points:
        if not math.isfinite(y):
            pen_is_down = False
            continue
        at_x, at_y = x_scale.place(x), y_scale.place(y)
        commands.append(f"{'L' if pen_is_down else 'M'}{at_x} {at_y}")
        pen_is_down = True
        dots.append(Dot(at_x, at_y, f"{curve.name}: {label(y)} at step {label(x)}"))
    shown = tuple(dots) if len(dots) <= _MOST_DOTS and not curve.is_faint else ()
    return Stroke(curve.name, "".join(commands), shown, curve.is_faint, color)


def _in_words(curve: Curve) -> str:
    finite = [(x, y) for x, y in curve.points if math.isfinite(y)]
    if not finite:
        return f"{curve.name}: no values."
    (first_x, first_y), (last_x, last_y) = finite[0], finite[-1]
    if len(finite) == 1:
        return f"{curve.name}: {label(first_y)} at step {label(first_x)}."
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    return (
        f"{curve.name}: from {label(first_y)} at step {label(first_x)} to {label(last_y)} at step "
        f"{label(last_x)}; between {label(low)} and {label(high)}."
    )
