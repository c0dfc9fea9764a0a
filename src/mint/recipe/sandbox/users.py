"""A user for each run, where we may choose: root gives every program one that nobody else has.

Then the kernel counts that program's processes alone, and it can neither signal nor read what is not
open to everybody.
"""

import os
import random
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mint.recipe.exceptions import SandboxError

FREE = range(0x70000000, 0x7FFFFFFF)
"""Numbers that no system hands out (systemd's list of user numbers has them as unused)."""
FREE_IN_CONTAINER = range(30_000, 60_000)
"""For a container that knows 65536 users only; those with a name are left out."""


def can_choose_user() -> bool:
    """Whether programs can be given a user of their own here."""
    return sys.platform == "linux" and os.geteuid() == 0


@contextmanager
def user_of_its_own() -> Iterator[int]:
    """A user number that no other run on this machine has meanwhile.

    An abstract socket's name serves as the claim: there is one of each on a machine, and it goes with
    its owner, however that ends.
    """
    numbers = _known_numbers()
    for _ in range(1000):
        number = random.choice(numbers)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(f"\0mint-sandbox-user-{number}")
            except OSError:
                continue
            if not _has_name(number):
                yield number
                return
    raise SandboxError("No user number is free for the program: all those tried are in use.")


def _known_numbers() -> range:
    with open("/proc/self/uid_map") as lines:
        mapped = [tuple(map(int, line.split())) for line in lines]
    for numbers in (FREE, FREE_IN_CONTAINER):
        if any(start <= numbers[0] and numbers[-1] < start + length for start, _, length in mapped):
            return numbers
    raise SandboxError(
        "This container maps too few users to give a program one of its own: /proc/self/uid_map "
        f"has neither all of {FREE_IN_CONTAINER[0]} to {FREE_IN_CONTAINER[-1]} nor the high numbers. "
        "Run as another user than root, or map 65536 users."
    )


def _has_name(number: int) -> bool:
    import pwd  # not on Windows

    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
