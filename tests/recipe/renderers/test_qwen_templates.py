"""Qwen's renderers against the models' own chat templates, over the real vocabulary."""

import pytest
from hypothesis import HealthCheck, given, settings
from tests.recipe.renderers.conversations import CLOCK, NAMED, WEATHER, conversations, user
from tests.recipe.renderers.published import FAMILIES, answers_of, golden, template
from tests.recipe.renderers.qwen import tokenizer

from mint.recipe.messages import Message
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.qwen3 import (
    Qwen3DisableThinkingRenderer,
    Qwen3InstructRenderer,
    Qwen3Renderer,
)
from mint.recipe.renderers.qwen3_5 import Qwen35DisableThinkingRenderer, Qwen35Renderer
from mint.recipe.renderers.reasoning import reasoning_of

THINKING = {"qwen3": Qwen3Renderer, "qwen3_5": Qwen35Renderer}
NOT_THINKING = {"qwen3": Qwen3DisableThinkingRenderer, "qwen3_5": Qwen35DisableThinkingRenderer}
EVERY_CASE = [
    (family, name, form) for family in FAMILIES for name in NAMED for form in golden(family)[name]
]


def renderer_of(family: str, *, thinks: bool = True) -> Renderer:
    return (THINKING if thinks else NOT_THINKING)[family](tokenizer())


def reasons(messages: list[Message]) -> bool:
    """Somebody thought something after the last user message."""
    return any(reasoning_of(m).reasoning for m in last_turn(messages))


def always_reasons(messages: list[Message]) -> bool:
    return all(reasoning_of(m).reasoning.strip() for m in last_turn(messages))


def last_turn(messages: list[Message]) -> list[Message]:
    """What the assistant says after the last user message."""
    last = Qwen3Renderer(tokenizer()).last_user_index(messages)
    return [m for m in messages[last + 1 :] if m["role"] == "assistant"]


def assert_is(ours: list[int], text: str, *, same_tokens: bool = True) -> None:
    """Our tokens are the text's. Those of an empty think block that the prompt of Qwen3.5 opens
    differ on purpose: there the text must be the same."""
    assert tokenizer().decode(ours) == text
    if same_tokens:
        assert ours == tokenizer().encode(text)


@pytest.mark.parametrize(("family", "name", "form"), EVERY_CASE)
def test_a_conversation_has_the_tokens_of_the_published_template(family, name, form):
    messages, text = NAMED[name], golden(family)[name][form]
    same_tokens = family == "qwen3" or always_reasons(messages)

    if form == "example":
        ours = renderer_of(family).weighted_example(messages)[0].to_ints()
        # the template puts the break between turns at the end of the earlier one
        assert_is(ours, text.removesuffix("\n"), same_tokens=same_tokens)
    else:
        thinks = form == "prompt"
        ours = renderer_of(family, thinks=thinks).build_generation_prompt(messages).to_ints()
        assert_is(ours, text, same_tokens=same_tokens or not thinks)


@pytest.mark.parametrize(
    ("family", "name"),
    [(f, n) for f, n, form in EVERY_CASE if form == "example" and not reasons(NAMED[n])],
)
def test_without_thinking_an_example_has_the_very_tokens_of_the_template(family, name):
    ours = renderer_of(family, thinks=False).weighted_example(NAMED[name])[0].to_ints()
    assert_is(ours, golden(family)[name]["example"].removesuffix("\n"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "system_prompt"), [("tools", ""), ("tools and a system prompt", "Be kind.")]
)
def test_tools_are_offered_in_the_published_words(family, name, system_prompt):
    renderer = renderer_of(family)
    opening = renderer.create_conversation_prefix_with_tools([WEATHER, CLOCK], system_prompt)
    ours = renderer.build_generation_prompt([*opening, user("Hi")]).to_ints()
    assert_is(ours, golden(family)[name]["prompt"])


@pytest.mark.parametrize(
    "name",
    [name for name in NAMED if name.startswith(("history", "results", "a result asks", "one q"))],
)
def test_instruct_is_the_template_without_think_blocks(name):
    renderer = Qwen3InstructRenderer(tokenizer())
    form, text = next(iter(golden("qwen3")[name].items()))
    text = text.replace("<think>\n\n</think>\n\n", "")
    if form == "example":
        assert_is(renderer.weighted_example(NAMED[name])[0].to_ints(), text.removesuffix("\n"))
    else:
        assert_is(renderer.build_generation_prompt(NAMED[name]).to_ints(), text)


# ------------------------------------------------ the templates themselves

needs_templates = pytest.mark.skipif(
    template("qwen3") is None, reason="MINT_CHAT_TEMPLATES names no folder with the templates"
)
many = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@needs_templates
@pytest.mark.parametrize("family", FAMILIES)
def test_the_answers_that_are_kept_are_the_templates(family):
    ask = template(family)
    assert ask is not None
    assert golden(family) == answers_of(family, ask)


@needs_templates
@pytest.mark.parametrize("family", FAMILIES)
@many
@given(messages=conversations(ends_with_answer=True))
def test_any_example_is_the_templates(family, messages):
    ask = template(family)
    assert ask is not None
    text = ask(messages, parsed_arguments=family == "qwen3_5").removesuffix("\n")
    ours = renderer_of(family).weighted_example(messages)[0].to_ints()
    assert_is(ours, text, same_tokens=family == "qwen3" or always_reasons(messages))


@needs_templates
@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@many
@given(
    messages=conversations(ends_with_answer=False).filter(
        lambda messages: messages[-1]["role"] in ("user", "tool")
    )
)
def test_any_prompt_is_the_templates(family, thinks, messages):
    ask = template(family)
    assert ask is not None
    text = ask(messages, asks=True, thinking=thinks, parsed_arguments=family == "qwen3_5")
    ours = renderer_of(family, thinks=thinks).build_generation_prompt(messages).to_ints()
    assert_is(ours, text, same_tokens=family == "qwen3" or not thinks or always_reasons(messages))
