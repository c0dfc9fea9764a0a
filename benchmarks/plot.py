"""The picture of scaling.py, as SVG: two panels with a logarithmic x axis."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
INK, FAINT, LINE = "#333", "#ddd", "#1f6feb"


def scaling(sampling_ms: Mapping[int, float], training_ms: Mapping[int, float]) -> str:
    """CPU milliseconds per token, over requests at once and over tokens per datum."""
    panels = (
        _panel(0, "Sampling", "requests at once", sampling_ms),
        _panel(WIDTH, "Training", "tokens per datum", training_ms),
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
            f'width="{2 * WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="#fff"/>',
            *panels,
            "</svg>\n",
        )
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


def _curve(points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>'
        f'<g fill="{LINE}">{dots}</g>'
    )
