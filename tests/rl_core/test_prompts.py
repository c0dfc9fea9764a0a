"""Prompts in whatever form people have them."""

from typing import Any

import numpy as np
import pytest
from tests.rl_core.world import TOKENIZER

from mint import ModelInput
from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer
from mint.rl_core.prompts import as_prompts, as_sent, end_token, is_rendered, tokens_of

RENDERER = Qwen3InstructRenderer(TOKENIZER)


def test_a_text_is_what_a_user_says():
    sent, stop = as_sent("hi", RENDERER)

    assert TOKENIZER.decode(sent.to_ints()) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert stop == TOKENIZER.encode("<|im_end|>")


def test_a_conversation_is_sent_whole():
    talk = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "more"},
    ]

    sent, _ = as_sent(talk, RENDERER)

    assert sent == RENDERER.build_generation_prompt(talk)  # pyright: ignore[reportArgumentType]
    assert "be brief" in TOKENIZER.decode(sent.to_ints())


@pytest.mark.parametrize(
    "tokens",
    [[1, 2], (1, 2), np.array([1, 2]), ModelInput.from_ints([1, 2]), {"input_ids": [1, 2]}],
    ids=lambda tokens: type(tokens).__name__,
)
def test_tokens_are_sent_as_they_are(tokens: Any):
    assert tokens_of(tokens, "a prompt").to_ints() == [1, 2]


def test_words_are_told_from_tokens():
    words = ["hi", [{"role": "user", "content": "hi"}]]
    tokens = [[1], ModelInput.from_ints([1]), np.array([1])]

    assert list(map(is_rendered, [*words, *tokens])) == [True, True, False, False, False]
    assert as_prompts(iter([*words, *tokens])) == [*words, *tokens]


@pytest.mark.parametrize(
    "bad", ["", [], {}, None, 3, [1, "a"], [["hi"]], [{"content": "hi"}], b"hi"]
)
def test_what_is_no_prompt_is_refused_by_its_place(bad: Any):
    with pytest.raises(DataFormatError, match=r"prompts\[1\] is .* A prompt is a text"):
        as_prompts(["hi", bad])


@pytest.mark.parametrize("bad", ["one question", {"q": "hi"}, None, 3, ModelInput.from_ints([1])])
def test_one_prompt_in_place_of_a_list_is_refused(bad: Any):
    with pytest.raises(DataFormatError, match="give a list of prompts"):
        as_prompts(bad)


def test_one_conversation_in_place_of_a_list_of_them_is_told_so():
    with pytest.raises(DataFormatError, match=r"One conversation is a list by itself: \[\[...\]\]"):
        as_prompts([{"role": "user", "content": "hi"}])


def test_no_prompts_are_refused():
    with pytest.raises(DataFormatError, match=r"prompts is empty.*Give one or more"):
        as_prompts([])


@pytest.mark.parametrize("empty", ["", [], ModelInput.empty()])
def test_an_empty_prompt_is_called_that(empty: Any):
    with pytest.raises(DataFormatError, match=r"prompts\[1\] is .* It is empty"):
        as_prompts(["hi", empty])


@pytest.mark.parametrize("bad", [[], None, 3.5, {"ids": [1]}, [[1, 2]]])
def test_an_encoding_without_tokens_is_refused_with_its_source(bad: Any):
    with pytest.raises(DataFormatError, match=r"^what Mine\.make_prompt gave is"):
        tokens_of(bad, "what Mine.make_prompt gave")


def test_a_tokenizer_without_an_end_is_refused():
    class Endless:
        eos_token_id = None

    with pytest.raises(ConfigurationError, match=r"Endless.eos_token_id is None"):
        end_token(Endless())
