"""Plain text with roles: what it looks like, and every way in which a response can end."""

import logging

import pytest
from tests.recipe.renderers.conversations import assistant, system, user
from tests.recipe.tokens import ByteTokenizer
from tinker import ModelInput

from mint.recipe.renderers import get_renderer
from mint.recipe.renderers.layout import ParseTermination

TOKENIZER = ByteTokenizer()
ONE = get_renderer("role_colon", TOKENIZER)
EOS = [TOKENIZER.eos_token_id]


def text(messages, renderer=ONE) -> str:
    return TOKENIZER.decode(renderer.build_generation_prompt(messages).to_ints())


def read(response: str, end: list[int] | None = None):
    return ONE.parse_response(TOKENIZER.encode(response) + (end or []))


def test_it_looks_like_a_play():
    talk = [system("Be kind."), user("2+2?"), assistant("4"), user("Sure?")]
    assert text(talk) == (
        "System: Be kind.\n\nUser: 2+2?\n\nAssistant: 4\n\nUser: Sure?\n\nAssistant:"
    )
    assert ONE.get_stop_sequences() == ["\n\nUser:"]


def test_it_begins_with_the_tokenizers_bos_if_there_is_one():
    with_bos = get_renderer("role_colon", ByteTokenizer(bos_token="<|begin_of_text|>"))
    assert text([user("a")], with_bos) == "<|begin_of_text|>User: a\n\nAssistant:"


def test_the_trained_end_is_the_stop_text_whole():
    tokens, weights = ONE.weighted_example([user("a"), assistant("b")])
    trained = [t for t, weight in zip(tokens.to_ints(), weights, strict=True) if weight]
    assert TOKENIZER.decode(trained) == " b\n\nUser:"


@pytest.mark.parametrize(
    ("response", "end", "content", "termination"),
    [
        (" 4\n\nUser:", [], "4", ParseTermination.STOP_SEQUENCE),
        (" 4\n\nUser: and", [], "4", ParseTermination.STOP_SEQUENCE),
        (" 4", EOS, "4", ParseTermination.EOS),
        (" 4", [], "4", ParseTermination.MALFORMED),
        ("", [], "", ParseTermination.MALFORMED),
        ("", EOS, "", ParseTermination.EOS),
        (" 4\n\nUser:", EOS, "4", ParseTermination.MALFORMED),
        (" 4\n\nUser: 5\n\nUser:", [], "4", ParseTermination.MALFORMED),
        (" 4", EOS + EOS, "4", ParseTermination.MALFORMED),
    ],
)
def test_a_response_ends_with_the_stop_text_or_the_end_of_text_but_once(
    response, end, content, termination
):
    message, how = read(response, end)
    assert (message["content"], how) == (content, termination)


def test_not_termination_is_true_for_a_malformed_response_and_for_no_other():
    assert not read(" 4")[1]
    assert read(" 4\n\nUser:")[1]
    assert read(" 4", EOS)[1]
    assert [how for how in ParseTermination if not how] == [ParseTermination.MALFORMED]
    assert [how for how in ParseTermination if how.is_clean] == [
        how for how in ParseTermination if how
    ]


def test_a_response_that_ran_on_is_said_once_per_renderer(caplog):
    fresh = get_renderer("role_colon", ByteTokenizer())
    twice = TOKENIZER.encode(" a\n\nUser: b\n\nUser:")
    with caplog.at_level(logging.WARNING, logger="mint.recipe"):
        fresh.parse_response(twice)
        fresh.parse_response(twice)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "get_stop_sequences" in caplog.text


def bridged(end_of_turn: str, messages) -> str:
    sampled = ONE.build_generation_prompt([user("a")]).to_ints() + TOKENIZER.encode(end_of_turn)
    return TOKENIZER.decode(ONE.bridge(ModelInput.from_ints(sampled), messages).to_ints())


def test_a_turn_that_ended_with_the_end_of_text_goes_on_behind_it():
    assert bridged(" b<|endoftext|>", [user("c")]) == (
        "User: a\n\nAssistant: b<|endoftext|>\n\nUser: c\n\nAssistant:"
    )


def test_behind_the_stop_text_only_a_user_can_follow():
    assert bridged(" b\n\nUser:", [user("c"), system("d")]) == (
        "User: a\n\nAssistant: b\n\nUser: c\n\nSystem: d\n\nAssistant:"
    )
    for messages in ([], [system("d")]):
        with pytest.raises(NotImplementedError, match="build_generation_prompt"):
            bridged(" b\n\nUser:", messages)
