"""What a fork of this process must not share with it: threads that it lacks, pipes that are not its own."""

import os
from typing import Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    """Something that can begin anew in a fork."""

    def forget(self) -> None:
        """Let go of what the parent has; called in the child, where no other thread is left."""
        ...


_forgetful: "WeakSet[Forgetful]" = WeakSet()


def forget_in_forks(thing: Forgetful) -> None:
    """Have `thing.forget` called in each fork of this process, for as long as it exists."""
    _forgetful.add(thing)


def _forget_all() -> None:
    for thing in list(_forgetful):
        thing.forget()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_all)
