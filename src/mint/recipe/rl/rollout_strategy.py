"""What becomes of a group when an episode fails: the run ends, it is played again, or left out.

Members keep the order of `make_envs` whatever happens, since a builder of several players knows
them by position. Nobody is left running: when a group fails, the others are cancelled and awaited.
"""

import asyncio
import inspect
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from mint.recipe.exceptions import AllTrajectoriesFailedError, ConfigurationError
from mint.recipe.rl.types import Env, EnvGroupBuilder, RolloutError, Trajectory
from mint.recipe.tasks import limited, run_together

_log = logging.getLogger("mint.recipe.rl.rollout_strategy")

Play = Callable[[Env], Awaitable[Trajectory]]
"""Plays one env to its end."""


@dataclass(frozen=True)
class Played:
    """The episodes of a group, their envs, and every attempt that failed on the way."""

    trajectories_G: list[Trajectory]
    envs_G: list[Env]
    errors: list[RolloutError] = field(default_factory=list)


class RolloutStrategy(ABC):
    """Plays the members of one group."""

    catches_group_errors: bool = True
    """Whether a group that fails is left out of its batch (True) or ends the run."""

    @abstractmethod
    async def play_group(self, builder: EnvGroupBuilder, envs: Sequence[Env], play: Play) -> Played:
        """Play all of `envs` at once; raises what the group fails of."""

    @staticmethod
    def of(tolerance: "bool | RolloutStrategy | None") -> "RolloutStrategy":
        """The strategy that `Config.rollout_error_tolerance` names.

        None and False: FailFast. True: RetryOnFailure. A strategy: itself.
        """
        if isinstance(tolerance, RolloutStrategy):
            return tolerance
        if tolerance is None or isinstance(tolerance, bool):
            return RetryOnFailure() if tolerance else FailFast()
        raise ConfigurationError(
            f"rollout_error_tolerance={tolerance!r}: give True, False, None, or a strategy such as "
            "RetryOnFailure() or MinViableGroup()."
        )


@dataclass(frozen=True)
class FailFast(RolloutStrategy):
    """The first error ends the run."""

    catches_group_errors = False

    async def play_group(self, builder: EnvGroupBuilder, envs: Sequence[Env], play: Play) -> Played:
        trajectories_G = await run_together([_awaited(play(env)) for env in envs])
        return Played(trajectories_G, list(envs))


@dataclass(frozen=True)
class RetryOnFailure(RolloutStrategy):
    """A member that fails is played again with a fresh env, until the group's tries are used up."""

    max_retries: int = 3
    """Of the whole group, not of each member."""
    per_rollout_timeout: float | None = 0
    """Seconds for one attempt, which fails beyond them. 0 and None: no bound."""

    async def play_group(self, builder: EnvGroupBuilder, envs: Sequence[Env], play: Play) -> Played:
        members = _Members(
            builder, list(envs), play, len(envs), self.max_retries, self.per_rollout_timeout
        )
        return await members.played()


@dataclass(frozen=True)
class MinViableGroup(RolloutStrategy):
    """Members that fail are left out, as long as enough of the group is left.

    Below the floor they are played again, and then AllTrajectoriesFailedError is raised.
    """

    min_successful: int | None = None
    """The floor. None: three quarters of the group, rounded up."""
    max_retries: int = 3
    """Of the whole group, not of each member."""
    per_rollout_timeout: float | None = None
    """Seconds for one attempt, which fails beyond them. 0 and None: no bound."""

    async def play_group(self, builder: EnvGroupBuilder, envs: Sequence[Env], play: Play) -> Played:
        floor = self.min_successful
        if floor is None:
            floor = math.ceil(0.75 * len(envs))
        if floor > len(envs):
            raise ConfigurationError(
                f"min_successful={floor} can never be reached by a group of {len(envs)}. Lower it, "
                "or leave it out for three quarters of the group."
            )
        members = _Members(
            builder, list(envs), play, floor, self.max_retries, self.per_rollout_timeout
        )
        try:
            return await members.played()
        except Exception as error:
            failed = AllTrajectoriesFailedError(
                f"{type(builder).__name__}: fewer than {floor} of {len(envs)} rollouts can still "
                f"succeed, after {len(members.errors)} failed ones; the last: "
                f"{type(error).__name__}: {error}. Lower min_successful, raise max_retries, or "
                "mend what fails."
            )
            _attach(failed, members.errors)
            raise failed from error


@dataclass
class _Members:
    """One group while it plays."""

    builder: EnvGroupBuilder
    envs: list[Env]
    play: Play
    floor: int
    """How many have to succeed."""
    retries_left: int
    timeout_s: float | None
    errors: list[RolloutError] = field(default_factory=list)

    async def played(self) -> Played:
        self.hopeful = len(self.envs)  # played, or still playing
        found = await run_together([self._member(index) for index in range(len(self.envs))])
        kept = [(env, one) for env, one in zip(self.envs, found, strict=True) if one is not None]
        return Played([one for _, one in kept], [env for env, _ in kept], self.errors)

    async def _member(self, index: int) -> Trajectory | None:
        """One member's episode; None if the group goes on without it."""
        while True:
            try:
                return await self._within_time(self.envs[index])
            except Exception as error:
                self.errors.append(RolloutError(type(error).__name__, str(error)))
                if not self._goes_on(index, error):
                    _attach(error, self.errors)
                    raise
            if self.hopeful >= self.floor:
                return None
            self.hopeful += 1  # it plays again
            self.envs[index] = await self._fresh_env(index)

    def _goes_on(self, index: int, error: Exception) -> bool:
        """Settle a failure: the member is left out, or played again, or the group has failed."""
        if not self.builder.retryable:
            return False
        self.hopeful -= 1
        again = self.hopeful < self.floor
        if again and self.retries_left <= 0:
            return False
        self.retries_left -= again
        _log.warning(
            "%s: rollout of member %d failed (%s: %s); %s",
            *(type(self.builder).__name__, index, type(error).__name__, error),
            f"playing it again, {self.retries_left} tries left" if again else "left out",
        )
        return True

    async def _within_time(self, env: Env) -> Trajectory:
        def too_late() -> TimeoutError:
            return TimeoutError(
                f"the rollout took longer than per_rollout_timeout={self.timeout_s} s"
            )

        async with limited(asyncio.timeout(self.timeout_s or None), too_late):
            return await self.play(env)

    async def _fresh_env(self, index: int) -> Env:
        """Member `index` of a fresh group; the rest of that group is closed again."""
        fresh = list(await self.builder.make_envs())
        spare = [env for place, env in enumerate(fresh) if place != index]
        for env in spare:
            await _close(env)
        if index >= len(fresh):
            raise IndexError(
                f"{type(self.builder).__name__}.make_envs gave {len(fresh)} envs when called "
                f"again, after {len(self.envs)} before; member {index} has none. It must make the "
                "same group each time."
            )
        return fresh[index]


def rollout_errors_of(error: BaseException) -> list[RolloutError]:
    """Every failed attempt of the group that an error ended; at least the error itself."""
    return getattr(error, "_rollout_errors", None) or [
        RolloutError(type(error).__name__, str(error))
    ]


def _attach(error: Exception, errors: list[RolloutError]) -> None:
    error._rollout_errors = list(errors)  # type: ignore[attr-defined]


async def _awaited(one: Awaitable[Trajectory]) -> Trajectory:
    return await one


async def _close(env: Env) -> None:
    """Close an env that has something to close; a failure to do so is only logged."""
    close = getattr(env, "close", None)
    if close is None:
        return
    try:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
    except Exception:
        _log.warning("%s.close failed", type(env).__name__, exc_info=True)
