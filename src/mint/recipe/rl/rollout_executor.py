"""Where groups are played: here, as tasks of the event loop, or in an executor of the user's.

Rollouts mostly wait, so here is best. An executor is for envs that compute: it gets one picklable
task per group and gives back its episodes.
"""

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

from mint.recipe.exceptions import ConfigurationError

T = TypeVar("T")

_executor: ContextVar[Executor | None] = ContextVar("mint_recipe_rollout_executor", default=None)


def set_rollout_executor(executor: Executor | None) -> None:
    """Play groups in `executor` from now on; None: here.

    It holds for this context and the tasks that are started in it, so two runs side by side may
    differ.

    Raises:
        ConfigurationError: its processes are made by fork.
    """
    if executor is not None and _forks(executor):
        raise ConfigurationError(
            "rollouts cannot run in a process pool that forks: a client's connection lives in a "
            "thread, and threads do not survive a fork, so every request would wait for ever. Use "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))."
        )
    _executor.set(executor)


def get_rollout_executor() -> Executor | None:
    """The executor that groups are played in; None: here."""
    return _executor.get()


async def run_in(executor: Executor, task: Callable[[], T]) -> T:
    """The task's result, from an executor. Cancelling this ends our waiting, not the task."""
    return await asyncio.get_running_loop().run_in_executor(executor, task)


def _forks(executor: Executor) -> bool:
    if not isinstance(executor, ProcessPoolExecutor):
        return False
    context = getattr(executor, "_mp_context", None) or multiprocessing
    return context.get_start_method() == "fork"
