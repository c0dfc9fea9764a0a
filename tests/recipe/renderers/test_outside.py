"""The way to the package `renderers`, on a stand-in with its interface."""

import copy
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.recipe.renderers.conversations import assistant, user
from tests.recipe.tokens import ByteTokenizer
from tinker import ModelInput

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import FunctionBody, ToolCall, UnparsedToolCall
from mint.recipe.renderers import get_renderer

STOP = ord(";")


@dataclass
class Rendered:
    token_ids: list[int] = field(default_factory=list)
    message_indices: list[int] = field(default_factory=list)
    sampled_mask: list[bool] = field(default_factory=list)


class Theirs:
    """ "u:text;" and a line break; asks with "a:!", and calls the "!" sampled."""

    is_prefix_stable = True

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self.tokenizer = tokenizer

    def get_stop_token_ids(self) -> list[int]:
        return [STOP]

    def render(self, messages: list[dict[str, Any]]) -> Rendered:
        whole = Rendered()
        for i, message in enumerate(messages):
            says = message["role"] == "assistant"
            header, said = f"{message['role'][0]}:", f"{'!' * says}{message['content']};"
            whole.token_ids += self.tokenizer.encode(f"{header}{said}\n")
            whole.message_indices += [i] * (len(header) + len(said)) + [-1]
            whole.sampled_mask += [False] * len(header) + [says] * len(said) + [False]
        return whole

    def render_ids(self, messages, *, add_generation_prompt: bool) -> list[int]:
        return [*self.render(messages).token_ids, *b"a:!" * add_generation_prompt]

    def bridge_to_next_turn(
        self, prompt: list[int], sampled: list[int], messages
    ) -> Rendered | None:
        if messages[0]["role"] != "user":
            return None
        return Rendered(
            [*prompt, *sampled, *b"\n", *self.render_ids(messages, add_generation_prompt=True)]
        )

    def parse_response(self, response: list[int]) -> SimpleNamespace:
        calls = [
            SimpleNamespace(status="ok", name="f", arguments={"a": 1}, id="c", raw="f"),
            SimpleNamespace(status="invalid_json", name=None, arguments=None, id=None, raw="{"),
        ]
        text = self.tokenizer.decode(response).removesuffix(";")
        reasoning, _, text = text.rpartition("/")
        return SimpleNamespace(
            content=text, reasoning_content=reasoning, tool_calls=calls if "f" in text else []
        )


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch):
    def create_renderer(tokenizer, config):
        if config == "odd":
            raise ValueError("no such token")
        return Theirs(tokenizer)

    package = SimpleNamespace(create_renderer=create_renderer, config_from_name=lambda name: name)
    monkeypatch.setitem(sys.modules, "renderers", package)


TALK = [user("u"), assistant("x"), user("v")]


def one():
    return get_renderer("renderers/acme", ByteTokenizer())


def text(model_input: ModelInput) -> str:
    return ByteTokenizer().decode(model_input.to_ints())


def test_prompts_and_examples_are_theirs_but_what_the_prompt_supplies_is_not_trained():
    example, weights = one().weighted_example(TALK[:2])
    assert text(one().build_generation_prompt(TALK)) == "u:u;\na:!x;\nu:v;\na:!"
    assert text(example) == "u:u;\na:!x;"
    assert weights.tolist() == [0.0] * 8 + [1.0] * 2
    assert one().get_stop_sequences() == [STOP]


def test_turns_are_bridged_by_them_where_they_can():
    asked = text(one().build_generation_prompt(TALK[:1]))
    sampled = ModelInput.from_ints(list(f"{asked}x;".encode()))
    assert one().has_extension_property
    assert (
        one().bridge(sampled, [user("v")]).to_ints()
        == one().build_generation_prompt(TALK).to_ints()
    )
    with pytest.raises(NotImplementedError, match="cannot be extended"):
        one().bridge(sampled, [assistant("v")])


def test_what_they_read_becomes_a_message_of_ours():
    message, how = one().parse_response(list(b"hm/f;"))
    assert message == {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "f"}],
        "tool_calls": [ToolCall(function=FunctionBody(name="f", arguments='{"a": 1}'), id="c")],
        "unparsed_tool_calls": [UnparsedToolCall(raw_text="{", error="invalid_json")],
    }
    assert how.is_stop_sequence
    assert [bool(one().parse_response(list(said))[1]) for said in (b"a", b"a;b;", b"a;")] == [
        False, False, True,
    ]  # fmt: skip


def test_they_get_a_copy_of_the_tokenizer(monkeypatch: pytest.MonkeyPatch):
    copied = []
    monkeypatch.setattr(copy, "deepcopy", lambda tokenizer: copied.append(tokenizer) or tokenizer)
    tokenizer = ByteTokenizer()
    get_renderer("renderers/acme", tokenizer)
    assert copied == [tokenizer]


def test_what_they_refuse_is_an_error_of_ours_with_their_words():
    with pytest.raises(RendererError, match=r"'odd'.*no such token"):
        get_renderer("renderers/odd", ByteTokenizer())


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "renderers", None)
    with pytest.raises(RendererError, match="pip install renderers"):
        get_renderer("renderers/acme", ByteTokenizer())
