"""The pictures of scaling.py and math_rl.py, as SVG."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
INK, FAINT, LINE = "#333", "#ddd", "#1f6feb"
COLORS = (LINE, "#bf3989", "#1a7f37", "#9a6700")


def scaling(sampling_ms: Mapping[int, float], training_ms: Mapping[int, float]) -> str:
    """CPU milliseconds per token, over requests at once and over tokens per datum."""
    panels = (
        _panel(0, "Sampling", "requests at once", sampling_ms),
        _panel(WIDTH, "Training", "tokens per datum", training_ms),
    )
    return "\n".join((_opening(2 * WIDTH), *panels, "</svg>\n"))


def curves(title: str, axis: str, values: Mapping[str, Sequence[float]]) -> str:
    """Values by step, from 0 to 1 or their highest, one curve a name."""
    longest = max(len(series) for series in values.values())
    levels = ticks(max(1.0, *(max(series) for series in values.values())))
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(step: int, value: float) -> tuple[float, float]:
        return LEFT + across * step / max(1, longest - 1), TOP + down * (1 - value / levels[-1])

    parts = [
        f'<text x="{LEFT}" y="20" font-size="13" fill="{INK}">{title}</text>',
        *(_level(0, place(0, level)[1], level) for level in levels),
        *(
            _label(place(step, 0)[0], str(step), HEIGHT - BOTTOM + 16)
            for step in range(0, longest, 5)
        ),
        _label(LEFT + across / 2, axis, HEIGHT - 10),
        *(
            _curve([place(step, max(0.0, value)) for step, value in enumerate(series)], color, name)
            for (name, series), color in zip(values.items(), COLORS, strict=False)
        ),
    ]
    return "\n".join((_opening(WIDTH), *parts, "</svg>\n"))


def _opening(width: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        f'width="{width}" height="{HEIGHT}" font-family="sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )


def ticks(highest: float) -> list[float]:
    """Round values from 0 to the first that reaches `highest`: four to six of them."""
    raw = highest / 4
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    return [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]


def _panel(x0: int, title: str, axis: str, points: Mapping[int, float]) -> str:
    """One curve in a frame of its own, its left edge at `x0`."""
    sizes = sorted(points)
    levels = ticks(max(points.values()))
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    span = math.log2(sizes[-1] / sizes[0]) or 1.0

    def x(size: int) -> float:
        return x0 + LEFT + across * math.log2(size / sizes[0]) / span

    def y(value: float) -> float:
        return TOP + down * (1 - value / levels[-1])

    parts = [
        f'<text x="{x0 + LEFT}" y="20" font-size="13" fill="{INK}">'
        f"{title}: CPU ms per token</text>",
        *(_level(x0, y(level), level) for level in levels),
        *(_label(x(size), f"{size:,}", HEIGHT - BOTTOM + 16) for size in sizes),
        _label(x0 + LEFT + across / 2, axis, HEIGHT - 10),
        _curve([(x(size), y(points[size])) for size in sizes]),
    ]
    return "\n".join(parts)


def _level(x0: int, y: float, value: float) -> str:
    return (
        f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="{FAINT}"/><text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" '
        f'fill="{INK}">{value:g}</text>'
    )


def _label(x: float, text: str, y: float) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle" fill="{INK}">{text}</text>'


def _curve(points: Sequence[tuple[float, float]], color: str = LINE, name: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        f'<g fill="{color}"><title>{name}</title>{dots}</g>'
    )
