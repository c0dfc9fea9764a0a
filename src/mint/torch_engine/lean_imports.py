"""transformers' model classes without torch's compiler and distributed tensors.

Importing a model class of transformers imports both, for decorators and checks that one device
without compilation never needs: 3.5 of 6 CPU seconds of an engine process's start. Here it finds
stand-ins instead, which leave again, so that whoever needs the real modules later imports them.

Only for a process that is ours alone, as an engine process is: in it transformers goes on
believing that this torch has no torch.distributed.
"""

import importlib
import importlib.machinery
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed

_log = logging.getLogger(__name__)

_MODEL = "transformers.models.llama.modeling_llama"
"""Imports everything that the other families import, too."""
_STAND_INS = (
    "torch._dynamo",
    "torch._dynamo._trace_wrapped_higher_order_op",
    "torch.nn.attention.flex_attention",
)


def import_transformers() -> bool:
    """Import transformers' model classes the short way, once.

    Returns:
        False: not this time, since they are imported already or this transformers asks for more
        than our stand-ins have. Importing them as usual then works as ever.
    """
    if "transformers" in sys.modules or any(name in sys.modules for name in _STAND_INS):
        return False
    try:
        with _stand_ins(), _without_distributed():
            importlib.import_module(_MODEL)
    except Exception as error:
        _log.warning("transformers is imported the long way: %r", error)
        _forget("transformers")
        return False
    return True


@contextmanager
def _without_distributed() -> Iterator[None]:
    """Have torch say that it has no torch.distributed; transformers remembers the answer."""
    real = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        from transformers.utils.import_utils import is_torch_distributed_available

        assert is_torch_distributed_available() is False
        yield
    finally:
        torch.distributed.is_available = real


@contextmanager
def _stand_ins() -> Iterator[None]:
    for name in _STAND_INS:
        sys.modules[name] = _StandIn(name)
    torch._dynamo = sys.modules["torch._dynamo"]  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del torch._dynamo
        for name in _STAND_INS:
            sys.modules.pop(name, None)


class _StandIn(ModuleType):
    """A module whose every class is empty, and every function a decorator that changes nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else _unchanged


def _unchanged(
    decorated: Callable[..., Any] | None = None, *_: Any, **__: Any
) -> Callable[..., Any]:
    return _unchanged if decorated is None else decorated


def _forget(package: str) -> None:
    for name in [one for one in sys.modules if f"{one}.".startswith(f"{package}.")]:
        del sys.modules[name]
