"""From values to HTML: one environment, everything escaped, nothing executable.

A page shows what a model wrote, so it must be safe whatever that is. Three walls: every value is
escaped by the template engine (`autoescape`, and no template switches it off); the page forbids
itself all scripts and all requests (Content-Security-Policy in `base.html.j2`); and characters that
are invisible, or turn the direction of text round, are shown by their names.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from mint.recipe.visible_text import visible

_TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """The page that a file of `templates/` makes of these values; a missing value is an error."""
    return _environment().get_template(template).render(**values)


def number(value: object, digits: int = 3) -> str:
    """A number with so many decimals, an integer as it is, and a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return visible(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) >= 100):
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 10**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        auto_reload=False,  # a process keeps to the templates it began with
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment


def _shown(value: Any) -> Any:
    """What the engine escapes and writes for a value. It asks for every value of every template, so
    none is forgotten; markup made by a macro has been through here in its parts."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
