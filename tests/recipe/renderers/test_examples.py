"""Which tokens are trained, mode by mode, and how many examples that takes."""

import logging

import pytest
from tests.recipe.renderers.conversations import assistant, system, tool, user
from tests.recipe.renderers.families import Bare
from tests.recipe.tokens import ByteTokenizer

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message
from mint.recipe.renderers import TrainOnWhat

TALK = [
    system("S"),
    user("U"),
    assistant("A"),
    user("V"),
    assistant("B"),
    tool("T"),
    assistant("C"),
]


class Rewriting(Bare):
    extends = False


TOKENIZER = ByteTokenizer()


def marked(example) -> str:
    """What is trained, and a dot for each token that is not."""
    tokens, weights = example
    text = TOKENIZER.decode(tokens.to_ints())
    return "".join(letter if w else "." for letter, w in zip(text, weights, strict=True))


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        #                                 s:S;u:U;a:!A;u:V;a:!B;t:T;a:!C;
        ("last_assistant_message",       ".............................C;"),
        ("last_assistant_turn",          "....................B;.......C;"),
        ("all_assistant_messages",       "...........A;.......B;.......C;"),
        ("all_messages",                 "..S;..U;...A;..V;...B;..T;...C;"),
        ("all_user_and_system_messages", "..S;..U;.......V;.............."),
        ("all_tokens",                   "s:S;u:U;a:!A;u:V;a:!B;t:T;a:!C;"),
    ],
)  # fmt: skip
def test_each_mode_trains_outputs_of_its_messages_and_never_what_the_prompt_supplies(what, shown):
    assert marked(Bare(TOKENIZER).weighted_example(TALK, what)) == shown


def test_customized_trains_what_is_marked_and_wants_a_mark_on_every_message():
    marks = [False, True, True, False, False, False, False]
    talk: list[Message] = [{**m, "trainable": t} for m, t in zip(TALK, marks, strict=True)]  # type: ignore[misc]

    shown = marked(Bare(TOKENIZER).weighted_example(talk, TrainOnWhat.CUSTOMIZED))

    assert shown.replace(".", "") == "U;A;"
    with pytest.raises(RendererError, match=r"messages\[0\] has no \"trainable\""):
        Bare(TOKENIZER).weighted_example(TALK, "customized")
    with pytest.raises(RendererError, match=r"messages\[0\] has \"trainable\".*Use customized"):
        Bare(TOKENIZER).weighted_example(talk, "all_messages")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="all_of_it"):
        Bare(TOKENIZER).weighted_example(TALK, "all_of_it")


def test_a_conversation_that_ends_with_the_user_trains_nothing_by_default():
    _, weights = Bare(TOKENIZER).weighted_example(TALK[:2])
    assert weights.tolist() == [0.0] * 8


def test_with_the_extension_property_there_is_one_example():
    (one,) = Bare(TOKENIZER).weighted_examples(TALK, "all_assistant_messages")
    assert marked(one).replace(".", "") == "A;B;C;"


def test_without_it_there_is_one_per_trained_turn_each_ending_at_it():
    three = Rewriting(TOKENIZER).weighted_examples(TALK, "all_assistant_messages")
    two = Rewriting(TOKENIZER).weighted_examples(TALK)  # the last turn

    assert [marked(one).replace(".", "") for one in three] == ["A;", "B;", "C;"]
    assert [TOKENIZER.decode(tokens.to_ints())[-3:] for tokens, _ in three] == ["!A;", "!B;", "!C;"]
    assert [marked(one).replace(".", "") for one in two] == ["B;", "C;"]


@pytest.mark.parametrize("what", ["all_messages", "all_user_and_system_messages", "all_tokens"])
def test_without_it_other_text_than_the_assistants_cannot_be_trained_in_parts(what):
    with pytest.raises(RendererError, match="build_supervised_example"):
        Rewriting(TOKENIZER).weighted_examples(TALK, what)


def test_several_turns_in_one_example_are_warned_of_once_per_renderer(caplog):
    one, other = Rewriting(TOKENIZER), Rewriting(TOKENIZER)
    with caplog.at_level(logging.WARNING, logger="mint.recipe"):
        one.weighted_example(TALK)  # the last message alone: nothing to warn of
        assert caplog.records == []
        one.weighted_example(TALK, "all_assistant_messages")
        one.weighted_example(TALK, "all_assistant_messages")
        assert len(caplog.records) == 1
        other.weighted_example(TALK, "last_assistant_turn")
        assert len(caplog.records) == 2
        Bare(TOKENIZER).weighted_example(TALK, "all_assistant_messages")
        assert len(caplog.records) == 2


def test_a_renderer_of_ones_own_gets_prompts_and_bridges_for_nothing():
    one = Bare(TOKENIZER)
    asked = one.build_generation_prompt(TALK[:2])
    assert TOKENIZER.decode(asked.to_ints()) == "s:S;u:U;a:!"
    sampled = one.build_generation_prompt(TALK[:2], prefill="A")
    assert TOKENIZER.decode(one.bridge(sampled, [user("V")]).to_ints()) == "s:S;u:U;a:!A;u:V;a:!"
