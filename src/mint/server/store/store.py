"""Store: what the service remembers, one transaction a method.

Each method is one sentence and one transaction; another owner's objects do not exist for it. The
parts: `keys`, `sessions`, `models` (with samplers and base models), `operations` (the queue),
`checkpoints`, `usage` and `overview`; all take what they need from `database`.
"""

from mint.server.store.checkpoints import Checkpoints
from mint.server.store.keys import Keys
from mint.server.store.models import Models
from mint.server.store.operations import Operations
from mint.server.store.overview import Overview
from mint.server.store.sessions import Sessions
from mint.server.store.usage import UsageBook


class Store(Keys, Sessions, Models, Operations, Checkpoints, UsageBook, Overview):
    """All of it over one database. Synchronous and thread-safe; several processes may share it."""
