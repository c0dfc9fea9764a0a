import dataclasses
from pathlib import Path

import pytest

from mint.core.errors import ConfigError
from mint.server.settings import ServerSettings
from mint.server.settings_sources import all_settings, read_place, read_settings

SECRET = "postgresql+psycopg://mint:hush@db.example/mint"


@pytest.fixture
def config(tmp_path):
    """Writes a settings file and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "mint.toml"
        path.write_text(text)
        return path

    return write


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(config, tmp_path):
    file = config('port = 1\nthreads = 1\nmax_sequences = 1\nmodels = ["of-file"]\n')
    settings = read_settings(
        {"config": file, "port": 3, "data": tmp_path, "models": ()},
        {"MINT_PORT": "2", "MINT_THREADS": "2", "MINT_DEVICE": ""},
    )

    assert (settings.port, settings.threads, settings.max_sequences) == (3, 2, 1)
    assert (settings.models, settings.device, settings.config) == (("of-file",), "auto", file)


def test_the_environment_may_name_the_file(config, tmp_path):
    file = config("port = 4000\n")

    settings = read_settings({"data": tmp_path}, {"MINT_CONFIG": str(file)})
    assert (settings.port, settings.config) == (4000, file)


def test_every_setting_can_be_told_in_each_way(config, tmp_path):
    values = {
        "data": "d", "database": "postgres://h/n", "host": "::1", "port": 1, "models": ["a", "b"],
        "on_demand": True, "preload": False, "device": "cpu", "dtype": "bfloat16", "threads": 2,
        "memory_limit_gib": 1.5, "max_sequences": 3, "session_timeout_s": 4, "log_format": "json",
        "decode_threads": 1, "batch_tokens": 100, "training_share": 0.25, "kv_layout": "paged",
        "result_retention_s": 5.0, "max_pending_samples": 6, "orphan_timeout_s": 0,
        "exit_when_idle_s": 7,
    }  # fmt: skip
    known = {setting.name: setting for setting in all_settings()}
    assert set(values) == set(known) - {"config"}, "a new setting: give it a value here"

    def toml(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    file = config("\n".join(f"{name} = {toml(value)}" for name, value in values.items()))
    told = {
        known[name].variable: " ".join(value) if isinstance(value, list) else str(value)
        for name, value in values.items()
    }
    of_file = read_settings({"config": file}, {})
    of_environment = read_settings({}, {**told, "MINT_DATA": str(tmp_path / "d")})

    assert dataclasses.replace(of_file, config=None) == of_environment
    assert of_environment.session_timeout_s == 4.0
    assert of_environment.memory_limit_bytes == 3 * 2**29


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_sequence = 1", "unknown settings max_sequence. Did you mean 'max_sequences'?"),
        ('[server]\nhost = "::1"', "unknown settings server."),
        ('engine = "os:system"', "unknown settings engine."),
        ('config = "other.toml"', "unknown settings config."),
        ('port = "8000"', "port = '8000': give a whole number."),
        ("port = true", "port = True: give a whole number."),
        ("models = 'one'", "models = 'one': give a list of texts."),
        ("port = ", "cannot be read"),
        ("port = 70000", "outside 0..65535"),
    ],
)
def test_a_file_with_a_mistake_is_refused_and_the_mistake_is_named(config, text, words):
    with pytest.raises(ConfigError) as refused:
        read_settings({"config": config(text)}, {})

    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        read_settings({"config": tmp_path / "nowhere.toml"}, {})


@pytest.mark.parametrize(
    ("variable", "text"), [("MINT_PORT", "many"), ("MINT_ON_DEMAND", "perhaps")]
)
def test_a_variable_of_the_wrong_kind_is_named(variable, text):
    with pytest.raises(ConfigError, match=f"{variable}='{text}'"):
        read_settings({}, {variable: text})


def test_folders_in_a_file_lie_beside_it(config, tmp_path):
    file = config('data = "data"\nmodels = ["hub/name", "tiny=models/tiny", "big=/models/big"]\n')
    settings = read_settings({"config": file}, {})

    assert settings.data == tmp_path / "data"
    assert settings.models == ("hub/name", f"tiny={tmp_path}/models/tiny", "big=/models/big")


def test_only_a_loopback_server_without_models_serves_what_clients_name(config):
    assert read_settings({}, {}).on_demand
    assert not read_settings({"models": ("tiny",)}, {}).on_demand
    with pytest.raises(ConfigError, match="no base model to serve"):
        read_settings({"host": "0.0.0.0"}, {})
    with pytest.raises(ConfigError, match="no base model to serve"):
        read_settings({"on_demand": False}, {})


@pytest.mark.parametrize("url", ["postgres://h/n", "postgresql://h/n", "postgresql+psycopg://h/n"])
def test_a_postgresql_is_named_in_any_of_its_spellings(tmp_path, url):
    settings = ServerSettings(data=tmp_path, models=("tiny",), database=url)
    assert settings.store_at == "postgresql+psycopg://h/n"


def test_another_kind_of_database_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"begins with 'mysql'; give postgresql\+psycopg://"):
        ServerSettings(data=tmp_path, models=("tiny",), database="mysql://h/n")


def test_a_password_is_not_shown(tmp_path):
    settings = ServerSettings(data=tmp_path, models=("tiny",), database=SECRET)

    assert "hush" not in repr(settings)
    assert settings.shown_database == "postgresql+psycopg://mint:***@db.example/mint"
    assert ServerSettings.from_json(settings.to_json()) == settings


def test_a_command_beside_a_server_finds_its_place(config, tmp_path):
    file = config(f'data = "here"\ndatabase = "{SECRET}"\nhost = "0.0.0.0"\n')

    place = read_place({}, {"MINT_CONFIG": str(file)})
    assert (place.data, place.store_at) == (tmp_path / "here", SECRET)
