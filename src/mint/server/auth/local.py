"""The key of a server that only its own machine can reach."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mint.core.errors import ConfigError
from mint.core.ids import Owner
from mint.server.auth.keys import check_secret, hash_secret, hint, new_secret
from mint.server.auth.principal import KeyBook

LOCAL = "local"


class KeyStore(KeyBook, Protocol):
    """Where keys are kept; the store is one."""

    def list_keys(self) -> Sequence[object]: ...
    def create_key(
        self, owner: Owner, name: str, secret_hash: str, hint: str, is_admin: bool
    ) -> object: ...


def local_key(store: KeyStore, data: Path) -> Path | None:
    """See to it that a first start on loopback leaves a key to use; returns the file it is in.

    While there is no key at all, one named "local" is made and saved as `<data>/key` (0600), where
    embedded clients look for it. A file that is there already (the database was removed) is taken
    up again, so that those who copied it can go on. None: the file is not there, or its key does
    not open this server.
    """
    file = data / "key"
    if not store.list_keys():
        secret = _saved(file) or _save(file, new_secret())
        store.create_key(Owner(LOCAL), LOCAL, hash_secret(secret), hint(secret), is_admin=True)
    secret = _saved(file)
    return file if secret and store.key_by_hash(hash_secret(secret)) else None


def _saved(file: Path) -> str | None:
    try:
        return check_secret(file.read_text())
    except (OSError, ConfigError):
        return None


def _save(file: Path, secret: str) -> str:
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
        opened.write(f"{secret}\n")
    return secret
