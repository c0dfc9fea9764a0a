"""Tables of the docs that are made from the code: `python docs/tables.py` writes them anew.

A page marks where one goes:

    <!-- table: losses -->
    ...
    <!-- end -->
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from mint.core.losses import LOSSES, REFUSED
from mint.server.settings_sources import all_settings, shown_default

PAGES = Path(__file__).parent / "en"
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def losses() -> str:
    """Every loss with its inputs, config keys and equation."""
    rows = ["| `loss_fn` | `loss_fn_inputs` | `loss_fn_config` | loss of one token | source |"]
    rows.append("| --- | --- | --- | --- | --- |")
    for spec in LOSSES.values():
        inputs = ", ".join(
            f"`{entry.name}`" + ("" if entry.required else " (optional)") for entry in spec.inputs
        )
        keys = ", ".join(f"`{name}` {key.default:g}" for name, key in spec.config.items())
        rows.append(f"| `{spec.name}` | {inputs} | {keys} | `{spec.equation}` | {spec.source} |")
    rows += [f"| `{name}` | | | refused: {reason} | |" for name, reason in REFUSED.items()]
    return "\n".join(rows)


def settings() -> str:
    """Every setting of a server, with its default and what it means."""
    rows = ["| setting | flag | variable | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for one in all_settings():
        names = f"| `{one.name}` | `{one.flag}` | `{one.variable}` |"
        rows.append(re.sub(" +", " ", f"{names} {shown_default(one)} | {one.meaning} |"))
    return "\n".join(rows)


TABLES: Mapping[str, Callable[[], str]] = {"losses": losses, "settings": settings}


def renewed(page: str) -> str:
    """The page with every marked table made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> None:
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(renewed(path.read_text()))


if __name__ == "__main__":
    main()
