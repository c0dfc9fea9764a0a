"""A checkpoint by whatever a caller calls it: its path in any spelling, or its short id."""

from mint.core.checkpoints import CheckpointRef, is_short_id, short_id
from mint.core.errors import NotFoundError
from mint.core.ids import Owner
from mint.server.store.records import Checkpoint
from mint.server.store.store import Store

_ALL = 1_000_000


def find(store: Store, owner: Owner, text: str) -> Checkpoint:
    """The checkpoint of that name which the owner may read. For threads.

    Short ids (`ckpt_…`) mean the owner's own checkpoints; a public one of others has its path.

    Raises:
        UserError: neither a path nor a short id.
        NotFoundError: unknown, expired, or another owner's private one.
    """
    if not is_short_id(text):
        return store.checkpoint(owner, str(CheckpointRef.parse(text)))
    for checkpoint in store.list_checkpoints(owner, None, _ALL, 0):
        if short_id(checkpoint.path) == text:
            return checkpoint
    raise NotFoundError(
        f"there is no checkpoint {text!r}, or it has expired or been deleted. "
        "`mint checkpoints list` shows yours."
    )
