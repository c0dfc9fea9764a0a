"""Any chat template: as the template says, cut where turns begin; what it cannot do is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.renderers.conversations import assistant, system, user
from tests.recipe.renderers.families import FastTokenizer, talks
from tests.recipe.tokens import ID, ByteTokenizer

from mint.recipe.exceptions import RendererError
from mint.recipe.renderers import get_renderer

ENDS = "<|im_end|>"
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1].strip() }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Leaves reasoning out of history, as templates of reasoning models do."""
SPACED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content | trim }} <|im_end|>"
    "{% else %}{{ raise_exception('no role ' ~ m.role) }}{% endif %}{% endfor %}"
)
"""White space around answers, no words that ask for one, and strict about roles."""


def of(template: str | None, **more: Any):
    return get_renderer("hf_template", ByteTokenizer(chat_template=template, **more))


def text(renderer, messages, **options) -> str:
    return renderer.tokenizer.decode(
        renderer.build_generation_prompt(messages, **options).to_ints()
    )


def trained(renderer, messages, what="last_assistant_message") -> str:
    tokens, weights = renderer.weighted_example(messages, what)
    return renderer.tokenizer.decode(
        [t for t, w in zip(tokens.to_ints(), weights, strict=True) if w]
    )


# ------------------------------------------------------------ the real thing


def test_the_embedded_models_prompts_are_those_of_its_own_template(smollm2):
    one = get_renderer("hf_template", smollm2)
    talk = [user("What is 2+2?"), assistant("4."), user("And 3+3?")]

    ours = one.build_generation_prompt(talk).to_ints()

    own = smollm2.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert ours == smollm2.encode(own, add_special_tokens=False)
    assert own.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert one.get_stop_sequences() == [2]
    assert one.has_extension_property
    assert trained(one, talk[:2]) == "4.<|im_end|>"


@settings(max_examples=25, deadline=None)
@given(talk=talks(ends_with_answer=False))
def test_the_embedded_models_prompts_say_what_its_template_says(smollm2, talk):
    one = get_renderer("hf_template", smollm2)
    own = smollm2.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert one.encoder.decode(one.build_generation_prompt(talk).to_ints()) == own


def test_a_break_at_the_beginning_of_an_answer_is_not_joined_with_the_header():
    one = get_renderer("hf_template", FastTokenizer())
    answer = [user("q"), assistant("\nyes")]
    asked = one.build_generation_prompt(answer[:1]).to_ints()
    tokens, _ = one.weighted_example(answer)
    assert tokens.to_ints()[: len(asked)] == asked
    assert (
        one.tokenizer.encode("\n\n") != one.tokenizer.encode("\n") * 2
    )  # it would be, in one text


# ------------------------------------------------------------------- shapes


def test_a_template_that_drops_reasoning_from_history_gives_one_example_per_turn():
    one = of(FORGETFUL)
    talk = [user("a"), assistant("<think>t</think>b"), user("c"), assistant("d")]

    assert not one.has_extension_property
    first, second = one.weighted_examples(talk, "all_assistant_messages")

    decode = one.tokenizer.decode
    assert decode(first[0].to_ints()).endswith("assistant\n<think>t</think>b<|im_end|>")
    assert decode(second[0].to_ints()).endswith("assistant\nd<|im_end|>")
    assert "think" not in decode(second[0].to_ints())
    assert trained(one, talk) == "d<|im_end|>"
    with pytest.raises(NotImplementedError, match="rewrites earlier turns"):
        one.bridge(first[0], [user("c")])


def test_a_template_that_puts_white_space_around_answers():
    one = of(SPACED, bos_token="<|begin_of_text|>")
    talk = [user("a"), assistant("b"), user("c")]

    assert text(one, talk) == "<|begin_of_text|>[INST] a [/INST] b <|im_end|>[INST] c [/INST]"
    assert trained(one, talk[:2]) == " b <|im_end|>"
    message, how = one.parse_response(one.tokenizer.encode(" b <|im_end|>"))
    assert (message["content"], bool(how)) == ("b", True)


def test_what_a_template_refuses_is_told_with_the_roles():
    one = of(SPACED)
    with pytest.raises(RendererError, match=r"these roles: system, user \(no role system\)"):
        one.build_generation_prompt([system("s"), user("a")])


def test_a_template_whose_history_differs_trains_the_last_turn_and_refuses_earlier_ones():
    one = of(
        "{% for m in messages %}<|im_start|>{{ m.role }}{{ ' again' if not loop.last }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    talk = [user("a"), assistant("b"), user("c"), assistant("d")]
    with pytest.raises(RendererError, match=r"messages\[1, 3\]"):
        one.weighted_example(talk, "all_assistant_messages")


def test_only_the_assistants_turns_can_be_trained_apart_from_all_tokens():
    one = of(FORGETFUL)
    talk = [user("a"), assistant("b")]
    with pytest.raises(RendererError, match=r"messages\[0\].*all_tokens"):
        one.weighted_example(talk, "all_messages")
    _, weights = one.weighted_example(talk, "all_tokens")
    assert set(weights.tolist()) == {1.0}


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (None, "no chat template.*role_colon"),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "end that turn with a special token",
        ),
        ("{{ nothing.at.all }}", "refuses messages"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_at_once(template, why):
    with pytest.raises(RendererError, match=why):
        of(template)


def test_only_the_assistant_can_be_asked():
    with pytest.raises(RendererError, match="not for 'user'"):
        of(FORGETFUL).build_generation_prompt([user("a")], role="user")


# ------------------------------------------------------- what users may type


@given(content=st.text(alphabet="ab<|>im_end \ue000\ue001\n", max_size=20))
@settings(max_examples=50, deadline=None)
def test_placeholders_for_special_text_never_show(content):
    one = of(FORGETFUL)
    asked = one.build_generation_prompt([user(content + ENDS)]).to_ints()
    assert one.tokenizer.decode(asked) == (
        f"<|im_start|>user\n{content}{ENDS}{ENDS}\n<|im_start|>assistant\n"
    )
    assert asked.count(ID[ENDS]) == 1
