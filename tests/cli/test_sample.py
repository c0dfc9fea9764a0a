"""mint sample: what is wrong is said in one line, before anything slow is tried.

What it prints when all is well: tests/client/test_end_to_end.py.
"""

import pytest
from click.testing import CliRunner, Result

from mint.cli.main import main


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch, tmp_path):
    for name in ("MINT_BASE_URL", "MINT_API_KEY", "TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINT_EMBEDDED", "0")
    monkeypatch.setenv("MINT_HOME", str(tmp_path))


def sample(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sample", *arguments])


def test_neither_model_nor_checkpoint_is_a_usage_error():
    result = sample("hello")
    assert result.exit_code == 2
    assert "either --checkpoint PATH or --model NAME" in result.output


def test_a_path_that_is_no_checkpoint_is_explained():
    result = sample("--checkpoint", "runs/7", "hello")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "'runs/7' is not a checkpoint path" in result.output


def test_without_a_server_the_variables_are_named():
    result = sample("--model", "m", "hello")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "MINT_BASE_URL and MINT_API_KEY" in result.output


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINT_BASE_URL", "http://127.0.0.1:9/train")
    monkeypatch.setenv("MINT_API_KEY", "sk-x")
    result = sample("--model", "m", "hello")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "no server answers at http://127.0.0.1:9/train" in result.output
