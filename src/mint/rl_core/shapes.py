"""Which methods an adapter's class has, settled once when the class is created.

token-based    __call__ or acall, or score_batch alone: tokens in, Reward out
sample-based   make_prompt and compute_reward: a sample in, a number out
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

from mint import ModelInput
from mint.recipe.exceptions import ConfigurationError
from mint.rl_core.context import NO_CONTEXT
from mint.rl_core.limits import Limits
from mint.rl_core.tokens import as_model_input

Kind = Literal["acall", "__call__", "score_batch", "sample-based", "abstract"]

_SAMPLE_BASED = ("make_prompt", "compute_reward")


@dataclass(frozen=True)
class Shape:
    """How a class scores."""

    kind: Kind
    """The method that `score` uses, or what stands in its place."""
    takes_context: bool = False
    """Whether that method takes a third parameter `context`."""
    is_async: bool = False
    """Whether it, or `compute_reward`, is an `async def`, and so needs no thread."""


def shape_of(adapter: Any) -> Shape:
    """The shape of an adapter, or of its class."""
    return (adapter if isinstance(adapter, type) else type(adapter))._mint_shape


def read_shape(cls: type, base: type, is_abstract: bool) -> Shape:
    """The shape of an adapter's class.

    Args:
        base: the class whose own methods do not count: they only say what is missing.
        is_abstract: it leaves scoring to its subclasses, if it has none itself.

    Raises:
        TypeError: it has no way to score, or two, or one that cannot be called.
    """
    has = {
        name
        for name in ("__call__", "acall", "score_batch", *_SAMPLE_BASED)
        if getattr(cls, name, None) is not getattr(base, name)
    }
    if samples := has.intersection(_SAMPLE_BASED):
        return _sample_based(cls, samples, has & {"__call__", "acall"}, is_abstract)
    for kind in ("acall", "__call__", "score_batch"):
        if kind in has:
            return _token_based(cls, kind)
    if is_abstract:
        return Shape("abstract")
    raise TypeError(
        f"{cls.__name__} has no way to score. Write `def __call__(self, prompt, response)`, or "
        "`async def acall(self, prompt, response)` where it awaits something, and return a Reward. "
        f"A base of other adapters says so: class {cls.__name__}(RLAdapter, abstract=True)."
    )


def _sample_based(cls: Any, samples: set[str], tokens: set[str], is_abstract: bool) -> Shape:
    if tokens:
        raise TypeError(
            f"{cls.__name__} has {_listed(samples)} and {_listed(tokens)}. Either it scores tokens "
            "(__call__ or acall), or samples (make_prompt and compute_reward): leave one out."
        )
    missing: set[str] = {*_SAMPLE_BASED} - samples
    if missing and not is_abstract:
        raise TypeError(
            f"{cls.__name__} has {_listed(samples)} but no {_listed(missing)}: an adapter that scores "
            "samples needs both."
        )
    if missing:
        return Shape("abstract")
    return Shape("sample-based", is_async=inspect.iscoroutinefunction(cls.compute_reward))


def _token_based(cls: type, kind: Literal["acall", "__call__", "score_batch"]) -> Shape:
    method = getattr(cls, kind)
    is_async = inspect.iscoroutinefunction(method)
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        raise TypeError(f"{cls.__name__}.{kind} yields: return one Reward instead.")
    if kind == "score_batch":
        return Shape(kind, is_async=is_async)
    return Shape(kind, _takes(cls, kind, ("prompt", "response"), "context"), is_async)


def _takes(cls: type, name: str, wanted: tuple[str, ...], optional: str) -> bool:
    """Whether a method takes the optional parameter after those that it has to take.

    Raises:
        TypeError: it cannot be called with those alone.
    """
    try:
        signature = inspect.signature(getattr(cls, name))
    except (TypeError, ValueError):
        return False  # written in another language: its call will tell
    found = signature.parameters.get(optional)
    takes = found is not None and found.kind is not found.VAR_POSITIONAL
    named = {optional: None} if takes else {}
    is_bound = isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)
    try:
        signature.bind(*([] if is_bound else [None]), *wanted, **named)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}.{name}{signature} cannot be called with ({', '.join(wanted)}): {error}. "
            f"Write `def {name}(self, {', '.join(wanted)})`; a further parameter has a default, or "
            f"is called `{optional}`."
        ) from None
    return takes


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


@dataclass(frozen=True)
class BatchShape:
    """A `score_batch` that a class has of its own."""

    takes_contexts: bool
    is_async: bool


def batch_shape_of(adapter: Any) -> BatchShape | None:
    """How an adapter scores many with one call; None if it does not."""
    return type(adapter)._mint_batch_shape


def read_batch_shape(cls: type, base: type) -> BatchShape | None:
    """How a class scores many with one call; None if it does not.

    Raises:
        TypeError: it cannot be called.
    """
    method = getattr(cls, "score_batch", None)
    if method is getattr(base, "score_batch", None):
        return None
    takes_contexts = _takes(cls, "score_batch", ("pairs",), "contexts")
    return BatchShape(takes_contexts, inspect.iscoroutinefunction(method))


def check_settings(cls: type, limits: Limits) -> None:
    """
    Args:
        cls: whose methods score.

    Raises:
        ConfigurationError: settings that contradict each other.
    """
    if limits.blocking or limits.timeout_s is None:
        return
    for method in _plain_methods(cls):
        raise ConfigurationError(
            f"{limits.owner}: timeout_s={limits.timeout_s} cannot cut a plain {method} that runs on the "
            "event loop (blocking=False). Leave one of them out, or write an `async def`."
        )


def _plain_methods(cls: Any) -> Iterator[str]:
    """The scoring methods of a class that are no `async def`."""
    shape, batch_shape = cls._mint_shape, cls._mint_batch_shape
    if shape.kind != "abstract" and not shape.is_async:
        yield "compute_reward" if shape.kind == "sample-based" else shape.kind
    if batch_shape is not None and not batch_shape.is_async:
        yield "score_batch"


def with_model_inputs(method: Callable[..., Any]) -> Callable[..., Any]:
    """A scoring method that can also be called by hand with lists of tokens, and without a context."""
    takes_context = "context" in inspect.signature(method).parameters

    def given(prompt: Any, response: Any, rest: Any, named: Any) -> tuple[ModelInput, ModelInput]:
        if takes_context and not rest:
            named.setdefault("context", NO_CONTEXT)
        return as_model_input(prompt, "prompt"), as_model_input(response, "response")

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def scored_later(
            self: Any, prompt: Any, response: Any, *rest: Any, **named: Any
        ) -> Any:
            return await method(self, *given(prompt, response, rest, named), *rest, **named)

        return scored_later

    @wraps(method)
    def scored(self: Any, prompt: Any, response: Any, *rest: Any, **named: Any) -> Any:
        return method(self, *given(prompt, response, rest, named), *rest, **named)

    return scored
