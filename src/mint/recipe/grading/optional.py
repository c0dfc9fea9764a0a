"""Libraries that only some graders need."""

from importlib import import_module
from typing import Any


def needed(module: str, grader: str) -> Any:
    """The module, which the extra `grading` brings.

    Raises:
        ImportError: it is not installed; says who needs it and how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ImportError(
            f"{grader} needs {package} ({error}): pip install 'mint-rl[grading]'."
        ) from error
