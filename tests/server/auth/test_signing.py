from datetime import UTC, datetime, timedelta

import pytest

from mint.core.errors import AuthenticationError
from mint.server.auth.signing import Signer, signing_secret

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def signer(secret: bytes = b"s" * 32, now: datetime = NOW) -> Signer:
    return Signer(secret, lambda: now)


def test_a_token_says_what_was_signed_until_its_time_is_over():
    token = signer().sign(["anne", "tinker://m:train:0/weights/ü"], NOW + timedelta(hours=1))

    assert signer().read(token) == ["anne", "tinker://m:train:0/weights/ü"]
    assert signer(now=NOW + timedelta(minutes=59)).read(token)
    with pytest.raises(AuthenticationError, match="expired"):
        signer(now=NOW + timedelta(hours=1)).read(token)


@pytest.mark.parametrize("token", ["", ".", "x", "x.y", "é.é", "a.b.c", "W10.", "=.=", "\0"])
def test_what_is_no_token_opens_nothing(token: str):
    with pytest.raises(AuthenticationError):
        signer().read(token)


def test_another_servers_token_opens_nothing():
    token = signer(b"t" * 32).sign(["anne"], NOW + timedelta(hours=1))

    with pytest.raises(AuthenticationError, match="not made by this server"):
        signer().read(token)


def test_no_changed_character_leaves_a_token_valid():
    token = signer().sign(["anne", "p"], NOW + timedelta(hours=1))
    text, _, seal = token.partition(".")

    for at in range(len(text)):
        other = "A" if text[at] != "A" else "B"
        with pytest.raises(AuthenticationError):
            signer().read(f"{text[:at]}{other}{text[at + 1 :]}.{seal}")


def test_the_secret_is_made_once_and_for_its_owner_only(tmp_path):
    file = tmp_path / "links.secret"
    secret = signing_secret(file)

    assert signing_secret(file) == secret
    assert len(secret) == 32
    assert file.stat().st_mode & 0o777 == 0o600
