"""Where settings come from, and what is said when they do not fit."""

from pathlib import Path

import pytest

from mint.client.settings import EMBEDDED_MODEL, read, wire_key
from mint.core.errors import ConfigError

MINT = {"MINT_BASE_URL": "http://mint:1", "MINT_API_KEY": "sk-mint"}
TINKER = {"TINKER_BASE_URL": "http://tinker:2", "TINKER_API_KEY": "tml-tinker"}


def test_an_argument_wins_over_every_variable():
    settings = read({**MINT, **TINKER}, base_url="http://arg:3", api_key="sk-arg")
    assert (settings.base_url, settings.api_key) == ("http://arg:3", "sk-arg")


def test_mint_variables_win_over_tinker_variables():
    settings = read({**MINT, **TINKER})
    assert (settings.base_url, settings.api_key) == ("http://mint:1", "sk-mint")


def test_tinker_variables_are_used_when_mint_variables_are_absent():
    settings = read(TINKER)
    assert (settings.base_url, settings.api_key) == ("http://tinker:2", "tml-tinker")


@pytest.mark.parametrize("blank", ["", "  "])
def test_an_empty_variable_counts_as_unset(blank: str):
    settings = read({**TINKER, "MINT_BASE_URL": blank, "MINT_API_KEY": blank}, base_url=blank)
    assert (settings.base_url, settings.api_key) == ("http://tinker:2", "tml-tinker")


def test_with_nothing_set_the_embedded_server_is_meant():
    settings = read({"MINT_HOME": "/somewhere"})
    assert settings.base_url is None
    assert settings.embedded.enabled
    assert settings.embedded.home == Path("/somewhere")
    assert settings.embedded.models == (EMBEDDED_MODEL,)


def test_a_path_in_the_base_url_is_kept_and_a_trailing_slash_is_not():
    assert read(MINT, base_url="https://host/train/").base_url == "https://host/train"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "host/train"])
def test_a_base_url_that_is_none_is_refused_with_the_variable_to_change(url: str):
    with pytest.raises(ConfigError, match=r"not an http\(s\) URL.*MINT_BASE_URL"):
        read({**MINT, "MINT_BASE_URL": url})


@pytest.mark.parametrize("name", ["MINT_API_KEY", "TINKER_API_KEY"])
def test_a_key_without_a_server_names_both_variables(name: str):
    with pytest.raises(ConfigError, match=rf"{name} is set.*MINT_BASE_URL.*unset {name}"):
        read({name: "sk-secret"})


def test_a_key_of_ours_travels_in_the_form_upstream_lets_through():
    assert wire_key("sk-x") == "tml-sk-x"
    assert wire_key("tml-sk-x") == "tml-sk-x"


def test_a_key_of_no_known_form_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="begins with neither") as refusal:
        read({**MINT, "MINT_API_KEY": "hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_settings_do_not_show_the_key():
    assert "sk-mint" not in repr(read(MINT))


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False), ("true", True)])
def test_telemetry_is_off_unless_asked_for(value: str, on: bool):
    assert read({**MINT, "MINT_TELEMETRY": value}).telemetry is on


def test_several_embedded_models_are_named_with_commas_and_their_folders_made_absolute():
    settings = read({"MINT_EMBEDDED_MODEL": "a=rel/dir, b ,c=/abs"})
    assert settings.embedded.models == (f"a={Path('rel/dir').absolute()}", "b", "c=/abs")


@pytest.mark.parametrize("idle", ["soon", "-1", "0"])
def test_a_senseless_idle_time_is_refused(idle: str):
    with pytest.raises(ConfigError, match="MINT_EMBEDDED_IDLE_S"):
        read({"MINT_EMBEDDED_IDLE_S": idle})
