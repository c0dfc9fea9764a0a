import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner
from tests.server.rows import a_checkpoint, a_model, an_operation, create_of

from mint.cli.main import COMMANDS, main
from mint.server.auth.keys import hash_secret
from mint.server.auth.principal import Authenticator
from mint.server.store.records import Effects, NewSession, Tokens
from mint.server.store.store import Store

HEAVY = ("tinker", "torch", "sqlalchemy", "fastapi", "uvicorn", "numpy", "mint.server.process")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["serve", "--help"]])
def test_help_and_version_import_nothing_heavy(arguments):
    code = (
        "import sys; from mint.cli.main import main\n"
        f"try: main({arguments!r})\n"
        f"finally: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout
    assert done.stderr.strip() == "[]"


def test_version_is_the_distributions():
    assert version("mint-rl") in CliRunner().invoke(main, ["--version"]).output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_of_the_table_is_there(name):
    shown = CliRunner().invoke(main, [name, "--help"])

    assert shown.exit_code == 0, shown.output
    assert COMMANDS[name].line in CliRunner().invoke(main, ["--help"]).output


def test_an_unknown_command_is_refused_by_name():
    refused = CliRunner().invoke(main, ["severe"])

    assert refused.exit_code == 2
    assert "severe" in refused.output


def keys(tmp_path, *arguments: str):
    return CliRunner().invoke(main, ["keys", *arguments, "--data", str(tmp_path / "data")])


def test_a_key_is_shown_once_listed_without_its_secret_and_revoked(tmp_path):
    secret = keys(tmp_path, "create", "laptop", "--owner", "anne").stdout.strip()
    store = Store(tmp_path / "data" / "mint.db")
    principal = Authenticator(store).principal(secret)
    assert (principal.owner, principal.is_admin) == ("anne", False)

    listed = keys(tmp_path, "list").stdout
    assert "laptop" in listed
    assert secret[-4:] in listed
    assert secret not in listed

    assert keys(tmp_path, "revoke", principal.key_id).exit_code == 0
    assert store.key_by_hash(hash_secret(secret)) is None
    store.close()


def test_a_key_owns_for_its_name_unless_told_otherwise(tmp_path):
    secret = keys(tmp_path, "create", "laptop", "--admin").stdout.strip()
    store = Store(tmp_path / "data" / "mint.db")
    principal = Authenticator(store).principal(secret)
    assert (principal.owner, principal.is_admin) == ("laptop", True)
    store.close()


def test_usage_is_told_by_key_and_storage_by_owner(tmp_path):
    keys(tmp_path, "create", "laptop", "--owner", "anne")
    store = Store(tmp_path / "data" / "mint.db")
    [key] = store.list_keys()
    session = store.create_session(
        NewSession(owner=key.owner, idempotency_key=None, key_id=key.key_id)
    )
    model = a_model(session)
    store.enqueue(create_of(model), model=model)
    saved = store.enqueue(an_operation("SaveWeights", owner=key.owner, model_id=model.model_id))
    effects = Effects(tokens=Tokens(trained=12345), checkpoint=a_checkpoint(model, "a"))
    store.finish(saved, b"r", effects=effects)
    store.close()

    told = keys(tmp_path, "usage").stdout.splitlines()

    assert told[1].split()[:3] == ["anne", key.key_id, "laptop"]
    assert told[1].split()[-5:] == ["1", "0", "12345", "0", "0"]
    assert told[2].startswith("anne stores 1 checkpoints")


def test_revoking_an_unknown_key_says_how_to_find_the_right_one(tmp_path):
    keys(tmp_path, "create", "ada")
    refused = keys(tmp_path, "revoke", "ada")

    assert refused.exit_code == 1
    assert refused.stderr.strip() == (
        "Error: there is no key with ID 'ada'. `mint keys list` shows all with their IDs."
    )


@pytest.mark.parametrize("command", [("list",), ("revoke", "key-1")])
def test_looking_at_keys_makes_no_data_folder(tmp_path, command):
    refused = keys(tmp_path / "typo", *command)

    assert refused.exit_code == 1
    assert str(tmp_path / "typo") in refused.stderr
    assert not (tmp_path / "typo").exists()


def test_a_key_needs_a_name(tmp_path):
    refused = keys(tmp_path, "create", " ")

    assert refused.exit_code == 2
    assert "NAME is empty" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0", "--model", "tiny=/x"], "mint keys create NAME"),
        (["--host", "0.0.0.0"], "no base model to serve"),
        (["--model", "=x"], "give NAME, or NAME=FOLDER"),
        (["--dtype", "int4"], "give one of float32"),
        (["--exit-when-idle", "0"], "give more than 0"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(tmp_path, arguments, words):
    refused = CliRunner().invoke(main, ["serve", *arguments, "--data", str(tmp_path / "data")])

    assert refused.exit_code == 1
    assert words in refused.stderr
    assert len([line for line in refused.stderr.splitlines() if "Error" in line]) == 1
