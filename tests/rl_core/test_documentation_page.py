"""The page about custom environments: its code as printed, against a real server.

The page is kept beside this file with its indentation restored, and nothing else changed.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mint
from mint.rl_core import ModelInfo, Reward
from mint.testing import LocalService, local_service, tiny_model

PAGE = Path(__file__).with_name("documentation_page.txt").read_text()
CLASSES, USAGE = PAGE.split("# 在 RL 训练里使用\n")
ORIGINAL = Path(__file__).parents[3] / "shared" / "seeds" / "000_b8495aa5a4d5b186.txt"

MODEL = "Qwen/Qwen3-0.6B"
PLACEHOLDER = "sampler.sample(prompt=..., sampling_params=...)"
FILLED_IN = (
    "response_tokens = sampler.sample(prompt=prompt_tokens, sampling_params=params)"
    ".result().sequences[0].tokens"
)
"""What the reader of the page has to write in its place."""


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A server whose model has the name, the family and the tokens of the page's."""
    folder = tmp_path_factory.mktemp("qwen")
    tiny = tiny_model(folder, "qwen3", family="qwen3", vocab="qwen")
    with local_service(folder, options=("--model", f"{MODEL}={tiny.folder}")) as running:
        yield running


@pytest.fixture(scope="module")
def client(qwen: LocalService) -> Iterator[mint.ServiceClient]:
    """As the page makes it, where the environment names the server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in qwen.environment().items():
            patch.setenv(name, value)
        connected = mint.ServiceClient()
    yield connected
    connected.close("success").result()


@pytest.fixture(scope="module")
def tokenizer(client: mint.ServiceClient) -> Any:
    return client.create_lora_training_client(MODEL, rank=4).result().get_tokenizer()


@pytest.fixture
def page() -> dict[str, Any]:
    """The names that the page's classes leave behind."""
    names: dict[str, Any] = {}
    exec(CLASSES, names)
    return names


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the page itself is not in this checkout")
def test_the_code_kept_here_is_the_pages_word_for_word():
    lines = ORIGINAL.read_text().splitlines()
    begin = lines.index("import mint")
    (end,) = (n for n, line in enumerate(lines) if line.startswith('print(f"Reward:'))
    printed = [*lines[begin:end], lines[end].removesuffix("API Surface")]

    assert [line.strip() for line in PAGE.splitlines() if line.strip()] == printed


@pytest.mark.filterwarnings("ignore:Using the future:FutureWarning")  # the page calls no .result()
def test_the_usage_on_the_page_runs_as_printed(
    client: mint.ServiceClient, page: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    page |= {
        "service_client": client,
        "prompt_tokens": mint.types.ModelInput.from_ints([1, 2, 3]),
        "params": mint.SamplingParams(max_tokens=6, seed=0),
    }

    assert PLACEHOLDER in USAGE
    exec(USAGE.replace(PLACEHOLDER, FILLED_IN), page)

    reward, env = page["reward"], page["env"]
    assert isinstance(reward, Reward)
    assert len(page["response_tokens"]) == 6
    assert capsys.readouterr().out == f"Reward: {reward.score}, Metadata: {reward.metadata}\n"
    told: ModelInfo = env.get_model_info()
    assert (told.family, told.context_length) == ("qwen3", 512)
    assert told.vocab_size == len(env.get_tokenizer())


@pytest.mark.parametrize(
    ("text", "score", "metadata"),
    [
        ("The answer is 42.", 1.0, {"predicted": 42, "expected": 42}),
        ("7", 0.0, {"predicted": 7, "expected": 42}),
        ("none", 0.0, {"error": "No number found"}),
    ],
)
def test_the_pages_verifier_scores_by_hand_and_in_a_run_alike(
    tokenizer: Any, page: dict[str, Any], text: str, score: float, metadata: dict
):
    env = page["MathVerificationEnv"](tokenizer)
    response = env.get_tokenizer().encode(text)

    assert env([1], response) == Reward(score, metadata)
    assert asyncio.run(env.score([1], response)) == Reward(score, metadata)


def test_the_pages_tool_user_scores_a_call_and_a_long_answer(tokenizer: Any, page: dict[str, Any]):
    env = page["ToolUseEnv"](tokenizer)
    encode = env.get_tokenizer().encode

    both = env([1], encode('<tool_call>{"name": "add"}</tool_call>'))
    assert both.score == pytest.approx(1.0)
    assert both.metadata == {"used_tool": True, "coherence": 1.0}
    assert env([1], encode("no")).score == 0.0
