"""Who may add to the queue."""

from mint.core.errors import OverloadedError


def admit_sample(*, pending_samples: int, most: int) -> None:
    """Let one more sampling request of an owner in, or say that it is too early.

    Training calls are never refused: a client that may not go on with a model cannot make room.

    Args:
        pending_samples: of this owner, waiting now.
        most: ServerSettings.max_pending_samples.

    Raises:
        OverloadedError: the owner has too many waiting; the same request may succeed later.
    """
    if pending_samples >= most:
        raise OverloadedError(
            f"{pending_samples} of your sampling requests are waiting; at most {most} may. Send "
            "this one again when some have ended."
        )
