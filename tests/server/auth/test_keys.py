import re
from datetime import UTC, datetime, timedelta

import pytest

from mint.core.errors import AuthenticationError, ConfigError, NotFoundError
from mint.core.ids import KeyId, Owner
from mint.server.auth.keys import check_secret, hash_secret, hint, new_secret, normalize
from mint.server.auth.local import local_key
from mint.server.auth.principal import Authenticator
from mint.server.store.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "mint.db")
    yield store
    store.close()


def make(store: Store, secret: str, owner: str = "anne", is_admin: bool = False) -> KeyId:
    key = store.create_key(Owner(owner), "laptop", hash_secret(secret), hint(secret), is_admin)
    return key.key_id


def test_a_secret_is_random_and_of_the_agreed_form():
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{48}", new_secret())
    assert new_secret() != new_secret()


def test_upstreams_spelling_is_the_same_key(store):
    secret = new_secret()
    key_id = make(store, secret)

    assert normalize(f"tml-{secret}") == normalize(secret)
    for spelling in (secret, f"tml-{secret}", f"Bearer {secret}", f" Bearer tml-{secret} "):
        principal = Authenticator(store).principal(spelling)
        assert (principal.key_id, principal.owner) == (key_id, "anne")


def test_only_one_prefix_is_taken_off():
    assert normalize("tml-tml-sk-x") == "tml-sk-x"


@pytest.mark.parametrize("header", [None, "", "Bearer ", "sk-unknown", "tml-"])
def test_who_has_no_key_is_not_let_in(store, header):
    make(store, new_secret())

    with pytest.raises(AuthenticationError, match="mint keys create"):
        Authenticator(store).principal(header)


def test_a_revoked_key_opens_nothing(store):
    secret = new_secret()
    key_id = make(store, secret)
    store.revoke_key(key_id)
    store.revoke_key(key_id)

    with pytest.raises(AuthenticationError):
        Authenticator(store).principal(secret)
    assert store.list_keys()[0].revoked_at is not None
    with pytest.raises(NotFoundError):
        store.revoke_key(KeyId("key-unknown"))


def test_no_secret_is_kept(store, tmp_path):
    secret = new_secret()
    make(store, secret)
    store.close()

    kept = b"".join(path.read_bytes() for path in tmp_path.glob("mint.db*"))
    assert hash_secret(secret).encode() in kept
    assert secret.removeprefix("sk-").encode() not in kept


@pytest.mark.parametrize("secret", ["sk-password", "hunter2", "sk-" + "x" * 30 + " y", ""])
def test_a_secret_that_somebody_thought_up_is_refused(secret):
    with pytest.raises(ConfigError, match="mint keys create"):
        check_secret(secret)


def test_a_first_start_leaves_one_key_in_a_file_for_its_owner(store, tmp_path):
    file = local_key(store, tmp_path)

    assert file is not None
    assert file == tmp_path / "key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Authenticator(store).principal(file.read_text()).owner == "local"
    local_key(store, tmp_path)
    assert len(store.list_keys()) == 1


def test_a_first_start_takes_up_a_key_file_that_is_there(store, tmp_path):
    secret = new_secret()
    (tmp_path / "key").write_text(f"{secret}\n")
    local_key(store, tmp_path)

    assert Authenticator(store).principal(secret).owner == "local"


def test_no_key_is_made_where_keys_were_made_on_purpose(store, tmp_path):
    make(store, new_secret())

    assert local_key(store, tmp_path) is None
    assert not (tmp_path / "key").exists()


def test_the_use_of_a_key_is_noted_to_the_minute(tmp_path):
    start = now = datetime(2026, 1, 1, tzinfo=UTC)
    store = Store(tmp_path / "mint.db", clock=lambda: now)
    secret = new_secret()
    make(store, secret)
    authenticator = Authenticator(store, lambda: now)
    noted = []
    for seconds in (0, 1, 59, 61, 90):
        now = start + timedelta(seconds=seconds)
        authenticator.principal(secret)
        noted.append(store.list_keys()[0].last_used_at)
    store.close()

    assert noted == [start] * 3 + [start + timedelta(seconds=61)] * 2
