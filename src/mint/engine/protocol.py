"""The promise of an engine: whole operations in, one outcome each out.

An engine knows nothing of HTTP, users, sessions or SQL, and keeps no clock. One thread owns it
and calls it; nothing here is thread-safe, except `cancel`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mint.core.ids import OperationId
from mint.core.models import ServedModel
from mint.core.operations import Failure, Operation, Result


@dataclass(frozen=True, eq=False)
class Work:
    """One operation to start.

    Attributes:
        folder: where its checkpoint lies or shall lie: for SaveWeights, ImportAdapter and
            InterpolateCheckpoints a path that does not exist yet (the engine writes beside it and
            renames), for LoadWeights, CreateModelFrom, a Sample of saved weights and a ReverseKL
            against such the folder to read; None otherwise.
        source: for ImportAdapter the uploaded files, which the engine removes when it is done.
        terms: for InterpolateCheckpoints the folders of its sources, in their order.
    """

    operation_id: OperationId
    operation: Operation
    folder: Path | None = None
    source: Path | None = None
    terms: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How one operation ended."""

    operation_id: OperationId
    result: Result | Failure


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the engine holds and could take, for the scheduler and for people."""

    running_sequences: int
    """Sampled sequences being decoded."""
    waiting_sequences: int
    """Accepted, but no room for their KV now."""
    max_sequences: int
    cached_tokens: int
    """Tokens whose KV is kept for prompts that begin as something that has ended."""
    prompt_tokens: int
    """Of all prompts let in since the engine was made; also the next two."""
    reused_prompt_tokens: int
    """Those of them whose KV was there already: cached, or shared with another prompt."""
    sequences_set_back: int
    """How often a sequence gave its room up to older ones, to be continued later."""
    loaded_models: tuple[str, ...]
    """Base models whose weights are in memory."""
    adapters: int
    memory_bytes: int
    """Weights, adapters, optimizer state and KV cache, as the engine accounts them."""
    memory_limit_bytes: int
    device: str
    """Where it computes: "cpu", "cuda:0", "mps"."""
    dtype: str
    """Of the base weights and activations."""
    threads: int
    """CPU threads of its kernels."""


@dataclass(frozen=True)
class Doing:
    """Something that keeps an engine for long, outside of its operations."""

    what: str
    """ "loading base model X"."""
    share: float | None = None
    """How much of it is done, 0..1, where that is known."""


OnProgress = Callable[[Doing | None], None]
"""Told by an engine what keeps it; None: it is done. An engine may take one when it is made, since
it is made of such things, and calls it on the thread that works."""


def tell_nobody(_: Doing | None) -> None: ...


class Engine(Protocol):
    """Train adapters and sample from them.

    The caller starts operations in an order it has chosen and calls `step` until all have ended.
    Operations of one model must be started in their order of arrival; the engine keeps it. A
    failing operation leaves its neighbours alone.
    """

    def served(self) -> tuple[ServedModel, ...]:
        """The base models on offer; weights load on first use."""
        ...

    def preload(self) -> None:
        """Load what was configured to be in memory from the start. Called once, when the engine is
        already open for work; what cannot be loaded now is tried again on first use."""
        ...

    def start(self, work: Work) -> None:
        """Take an operation in. Never blocks on computing, never raises on bad input: what is
        wrong with an operation is its outcome."""
        ...

    def step(self) -> list[Outcome]:
        """Compute one bounded slice (a decode round, a training micro-batch, one weight
        operation) and return what ended with it. Returns at once when there is nothing to do."""
        ...

    def cancel(self, operation_id: OperationId) -> None:
        """Ask for an early end. A Sample ends within a slice as a Failure of fault CANCELLED;
        others run on. Unknown ids are ignored. May be called from any thread."""
        ...

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        ...

    def capacity(self) -> Capacity: ...

    def close(self) -> None: ...
