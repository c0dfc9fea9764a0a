"""What a model's name tells: its renderer, above all, for names that no table lists."""

import logging

import pytest
from tests.recipe.tokens import ByteTokenizer

from mint.recipe import get_recommended_renderer_name, model_info, renderers, tokenizers
from mint.recipe.exceptions import RendererError
from mint.recipe.model_info import get_model_attributes, get_recommended_renderer_names
from mint.torch_engine.models.tokenizer_files import CHATML


@pytest.fixture(autouse=True)
def _no_tokenizers(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(tokenizers, "_made", {})
    monkeypatch.setattr(tokenizers, "_factories", {})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("model", "renderer"),
    [
        ("Qwen/Qwen3-0.6B", "qwen3"),
        ("Qwen/Qwen3-0.6B:fast", "qwen3"),
        ("somewhere/QWEN3-0.6b", "qwen3"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3_instruct"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3_instruct"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_instruct"),
        ("Qwen/Qwen3-8B-Base", "role_colon"),
        ("Qwen/Qwen3.5-4B", "qwen3_5"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3_5"),
        ("Qwen/Qwen3.5-4B-Base", "role_colon"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen3_instruct"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama3"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3"),
        ("deepseek-ai/DeepSeek-V3.1-Base", "role_colon"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "hf_template"),
        ("/models/Qwen3-0.6B/", "qwen3"),
    ],
)
def test_a_name_leads_to_its_renderer_without_a_guess(model, renderer, caplog):
    assert get_recommended_renderer_name(model) == renderer
    assert caplog.records == []


def test_the_best_comes_first():
    assert get_recommended_renderer_names("Qwen/Qwen3-0.6B") == ["qwen3", "qwen3_disable_thinking"]
    assert get_recommended_renderer_names("Qwen/Qwen3.5-4B")[0] == "qwen3_5"


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen2.5-VL-7B", "Qwen/Qwen2-VL-2B-Instruct"]
)
def test_a_model_that_reads_images_is_refused_rather_than_given_a_text_renderer(model):
    with pytest.raises(RendererError, match="reads images"):
        get_recommended_renderer_name(model)
    attributes = get_model_attributes(model)
    assert (attributes.is_vl, attributes.recommended_renderers) == (True, ())


def test_an_unknown_model_goes_by_the_chat_template_of_its_tokenizer(caplog):
    tokenizers.register_tokenizer("a/talks", lambda: ByteTokenizer(chat_template="{{ messages }}"))
    tokenizers.register_tokenizer("a/writes", ByteTokenizer)
    assert get_recommended_renderer_name("a/talks") == "hf_template"
    assert get_recommended_renderer_name("a/writes") == "role_colon"
    assert caplog.records == []
    assert not get_model_attributes("a/writes").is_chat


@pytest.mark.parametrize(
    ("model", "guess"),
    [("google/gemma-3-1b-it", "hf_template"), ("meta-llama/Llama-3.1-8B", "role_colon")],
)
def test_a_guess_says_that_it_is_one(model, guess, caplog):
    with caplog.at_level(logging.WARNING, logger="mint.recipe"):
        assert get_recommended_renderer_name(model) == guess
    assert "guess" in caplog.text
    assert get_model_attributes(model).is_guess


def test_every_recommended_renderer_exists():
    names = {name for _, found in model_info._PATTERNS for name in found}
    for name in names | {"hf_template"}:
        renderers.get_renderer(name, ByteTokenizer(chat_template=CHATML))


@pytest.mark.parametrize(
    ("model", "family", "size", "is_chat", "is_guess"),
    [
        ("Qwen/Qwen3-0.6B", "qwen", "0.6B", True, False),
        ("Qwen/Qwen3-30B-A3B", "qwen", "30B", True, False),
        ("Qwen/Qwen3-8B-Base", "qwen", "8B", False, False),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm", "135M", True, False),
        ("acme/frog-7b-chat", "frog", "7B", True, True),
        ("tiny", "tiny", None, False, True),
    ],
)
def test_attributes_of_a_name(model, family, size, is_chat, is_guess):
    found = get_model_attributes(model)
    assert (found.family, found.size, found.is_chat, found.is_guess) == (
        family, size, is_chat, is_guess,
    )  # fmt: skip
