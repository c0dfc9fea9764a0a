"""A step's spans as bars over time, for the eye: `timing_gantt_<step>.html`, one file, no scripts."""

from html import escape
from pathlib import Path

from mint.recipe.stores.timing import Span, StepTimes

WIDTH, ROW = 1000, 14
MOST = 2000
"""Bars in one chart; the longest, where a step has more."""
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")

_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 13px system-ui, sans-serif; margin: 2em }}
  text {{ font-size: 10px; fill: currentColor }}
</style>
<h1>{title}</h1>
<p>{legend}</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
{bars}
</svg>
"""


def write_span_chart(folder: Path, step: int, times: StepTimes) -> Path:
    """Draw the spans of a step; returns the file."""
    path = folder / f"timing_gantt_{step:06d}.html"
    path.write_text(_page(step, times), encoding="utf-8")
    return path


def _page(step: int, times: StepTimes) -> str:
    rows = times.rows()
    if sum(map(len, rows)) > MOST:
        shortest = sorted(span.duration_s for row in rows for span in row)[-MOST]
        rows = [[span for span in row if span.duration_s >= shortest] for row in rows]
    names = list(dict.fromkeys(span.name for row in rows for span in row))
    color = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    end = max((span.start_s + span.duration_s for row in rows for span in row), default=1.0) or 1.0
    bars = [
        _bar(span, y, WIDTH / end, color[span.name]) for y, row in enumerate(rows) for span in row
    ]
    legend = [f'<span style="color:{color[name]}">■</span> {escape(name)}' for name in names]
    return _PAGE.format(
        title=f"Step {step}: {end:.2f} s",
        legend=" &nbsp; ".join(legend),
        width=WIDTH,
        height=max(len(rows), 1) * ROW,
        bars="\n".join(bars),
    )


def _bar(span: Span, y: int, scale: float, color: str) -> str:
    said = escape(f"{span.name}: {span.duration_s:.3f} s from {span.start_s:.3f} s")
    width = max(span.duration_s * scale, 0.5)
    return (
        f'<rect x="{span.start_s * scale:.1f}" y="{y * ROW}" width="{width:.1f}" '
        f'height="{ROW - 2}" fill="{color}"><title>{said}</title></rect>'
    )
