"""Libraries that only some graders need."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def needed(module: str, grader: str) -> Any:
    """The module, which the extra `grading` brings.

    Raises:
        ImportError: it is not installed; says who needs it and how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing(module, grader, error) from error


def check_installed(package: str, grader: str) -> None:
    """The same for a package that a worker imports, and that would only take memory here.

    Raises:
        ImportError: as for `needed`.
    """
    if find_spec(package) is None:
        raise _missing(package, grader, f"No module named {package!r}")


def _missing(module: str, grader: str, why: object) -> ImportError:
    package = module.partition(".")[0].replace("_", "-")
    return ImportError(f"{grader} needs {package} ({why}): pip install 'mint-rl[grading]'.")
