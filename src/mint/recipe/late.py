"""Packages whose names load when first used, so that importing the package costs nothing."""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def late_names(
    package: str,
    names: Mapping[str, str] | None = None,
    *,
    modules: Collection[str] = (),
    planned: Collection[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

    Args:
        package: its `__name__`.
        names: name -> the module that has it, as `from .MODULE import NAME` would have it.
        modules: of the package itself.
        planned: names that this release does not have.
    """
    homes, loaded = names or {}, vars(sys.modules[package])

    def load(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(f".{homes[name]}", package), name)
        elif name in modules:
            value = import_module(f".{name}", package)
        elif name in planned:
            raise AttributeError(f"{package}.{name} is not part of this release.")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded[name] = value  # found once: the next look-up does not come here
        return value

    def listed() -> list[str]:
        return sorted({*loaded, *homes, *modules})

    return load, listed
