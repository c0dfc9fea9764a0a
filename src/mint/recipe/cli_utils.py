"""Where runs go, and what to do with a log folder that is there already."""

import os
import shutil
import sys
from pathlib import Path
from typing import Literal

from mint.recipe.exceptions import ConfigurationError

LogDirBehavior = Literal["delete", "resume", "ask", "raise"]


def runs_path(*parts: str) -> str:
    """A path below the folder of all runs: $MINT_RUNS_DIR, or ./runs."""
    root = os.environ.get("MINT_RUNS_DIR") or "runs"
    return str(Path(root).expanduser().joinpath(*parts))


def check_log_dir(log_dir: str, behavior_if_exists: LogDirBehavior) -> None:
    """Settle what happens to an earlier run in `log_dir`, before anything is written there.

    Args:
        behavior_if_exists: "delete" it, "resume" it (nothing to do here), "ask" on a terminal, or
            "raise". Without a terminal there is nobody to ask, and "ask" raises.

    Raises:
        ConfigurationError: the folder is there and may not be used; or no such behavior.
    """
    if behavior_if_exists not in ("delete", "resume", "ask", "raise"):
        raise ConfigurationError(
            f"behavior_if_exists={behavior_if_exists!r}: give delete, resume, ask or raise."
        )
    folder = Path(log_dir).expanduser()
    if not folder.exists() or behavior_if_exists == "resume":
        return
    if behavior_if_exists == "ask" and sys.stdin.isatty() and sys.stderr.isatty():
        behavior_if_exists = _asked(folder)
        if behavior_if_exists == "resume":
            return
    if behavior_if_exists != "delete":
        raise ConfigurationError(
            f"{folder} has a run in it already. Give another log_path, or say what is to happen to "
            'it: behavior_if_exists="resume" or "delete".'
        )
    _delete(folder)


def _asked(folder: Path) -> LogDirBehavior:
    # Not input(): its question would go to stdout, which belongs to the script.
    sys.stderr.write(f"{folder} has a run in it already. [r]esume, [d]elete it, or stop? ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    answers: dict[str, LogDirBehavior] = {
        "r": "resume", "resume": "resume", "d": "delete", "delete": "delete",
    }  # fmt: skip
    return answers.get(answer, "raise")


def _delete(folder: Path) -> None:
    """A log folder only: a slip in log_path must not delete somebody's home."""
    signs = ("metrics.jsonl", "checkpoints.jsonl", "config.json", "logs.log")
    if any(folder.iterdir()) and not any((folder / sign).exists() for sign in signs):
        raise ConfigurationError(
            f"{folder} does not look like the folder of a run ({', '.join(signs)}: none is there), "
            "and is not deleted. Delete it yourself, or give another log_path."
        )
    shutil.rmtree(folder)
