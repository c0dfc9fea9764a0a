"""Who of the API processes on a data folder starts and replaces its engine process: one of them."""

from pathlib import Path

from filelock import FileLock, Timeout


class Keeping:
    """The keeper's lock. It ends with the process that holds it, however that ends."""

    def __init__(self, data: Path) -> None:
        self._lock = FileLock(data / "keeper.lock", timeout=0)

    def is_mine(self) -> bool:
        """Whether this process is the keeper; it becomes it now if there is none."""
        if self._lock.is_locked:
            return True
        try:
            self._lock.acquire()
        except Timeout:
            return False
        return True

    def give_up(self) -> None:
        self._lock.release()
