"""Where the recipes' log lines go during a run: to its logs.log, and to stderr.

Only the package's own logger is touched. The root logger, its level and other libraries' levels are
the script's.
"""

import logging
import sys
from contextvars import ContextVar
from pathlib import Path

from mint.recipe.visible_text import visible

PACKAGE = logging.getLogger("mint.recipe")

_current: ContextVar[Path | None] = ContextVar("mint_recipe_run_folder", default=None)
"""Whose log lines these are, where several runs go on side by side."""


class SafeFormatter(logging.Formatter):
    """One record as text that stays within it, whatever a model or an error wrote into it: control
    characters (colours and moves of a terminal) are shown as their numbers, and lines after the
    first are indented, so that none passes for a record of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record)).replace("\n", "\n    ")


class RunLogHandler(logging.FileHandler):
    """Writes the lines of one run: of the context it was opened in, of tasks and threads started
    there, and those that belong to no run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self._path = path
        self.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def filter(self, record: logging.LogRecord) -> bool:
        return _current.get() in (None, self._path) and bool(super().filter(record))


class StderrHandler(logging.Handler):
    """Writes to what sys.stderr is now (a progress bar may have put itself there), unless the script
    has set up logging: then its own handlers show our lines, in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(SafeFormatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


def open_log(path: Path) -> RunLogHandler:
    """Write log lines from INFO up to `path`, and warnings to stderr; for this context's run."""
    if PACKAGE.level == logging.NOTSET:
        PACKAGE.setLevel(logging.INFO)
    if not any(isinstance(handler, StderrHandler) for handler in PACKAGE.handlers):
        on_stderr = StderrHandler()
        on_stderr.setLevel(logging.WARNING)
        PACKAGE.addHandler(on_stderr)
    handler = RunLogHandler(path)
    PACKAGE.addHandler(handler)
    _current.set(path)
    return handler


def close_log(handler: RunLogHandler) -> None:
    """End what open_log began; with the last run, stderr is left to the script again."""
    PACKAGE.removeHandler(handler)
    handler.close()
    if _current.get() == handler._path:
        _current.set(None)
    if not any(isinstance(other, RunLogHandler) for other in PACKAGE.handlers):
        for other in [h for h in PACKAGE.handlers if isinstance(h, StderrHandler)]:
            PACKAGE.removeHandler(other)
