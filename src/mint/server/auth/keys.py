"""API keys: making, spelling and hashing their secrets."""

import hashlib
import re
import secrets

from mint.core.errors import ConfigError

_RANDOM_BYTES = 36  # 48 url-safe characters, 288 bits
_SHORTEST = 24
_SECRET = re.compile(r"sk-[A-Za-z0-9_-]+")


def new_secret() -> str:
    """A fresh secret: "sk-" and 48 url-safe characters."""
    return f"sk-{secrets.token_urlsafe(_RANDOM_BYTES)}"


def normalize(secret: str) -> str:
    """The one spelling of a secret: upstream's client takes only "tml-…", so "tml-sk-x" is "sk-x"."""
    return secret.strip().removeprefix("tml-")


def hash_secret(secret: str) -> str:
    """sha256 of the normalised secret, in hex.

    A plain hash is right here: secrets are 288 random bits, so there is nothing to guess that a
    slow hash or a salt would protect, and the key has to be found by its hash at every request.
    That is why a short secret, which a person might have chosen, is refused (`check_secret`).
    """
    return hashlib.sha256(normalize(secret).encode()).hexdigest()


def hint(secret: str) -> str:
    """The last four characters, to tell keys apart."""
    return secret[-4:]


def check_secret(secret: str) -> str:
    """Give a secret made elsewhere back, if it can serve as one of ours.

    Raises:
        ConfigError: it is no "sk-…" text, or too short to be random.
    """
    plain = normalize(secret)
    if not _SECRET.fullmatch(plain) or len(plain) < _SHORTEST:
        raise ConfigError(
            f"a key's secret must be 'sk-' and letters, digits, '_' or '-', {_SHORTEST} characters "
            "or more, made at random. `mint keys create NAME` makes one."
        )
    return plain
