"""Llama 3's chat format, character for character."""

import pytest
from tests.recipe.renderers.conversations import assistant, system, tool, user
from tests.recipe.tokens import ID, ByteTokenizer

from mint.recipe.exceptions import RendererError
from mint.recipe.renderers import get_renderer
from mint.recipe.renderers.layout import ParseTermination

TOKENIZER = ByteTokenizer()
ONE = get_renderer("llama3", TOKENIZER)
END = ID["<|eot_id|>"]


def test_a_conversation_as_the_model_card_has_it_without_a_date():
    talk = [system("s"), user("u "), assistant("a\n"), tool("t")]
    assert TOKENIZER.decode(ONE.build_generation_prompt(talk).to_ints()) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nu <|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\na\n<|eot_id|>"
        "<|start_header_id|>ipython<|end_header_id|>\n\nt<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert ONE.get_stop_sequences() == [END]


@pytest.mark.parametrize(
    ("response", "content", "termination"),
    [
        ("hi<|eot_id|>", "hi", ParseTermination.STOP_SEQUENCE),
        ("hi", "hi", ParseTermination.MALFORMED),
        ("hi<|endoftext|>", "hi<|endoftext|>", ParseTermination.MALFORMED),
        ("hi<|eot_id|>ho<|eot_id|>", "hi", ParseTermination.MALFORMED),
        ("hi<|eot_id|>ho", "hi", ParseTermination.STOP_SEQUENCE),
    ],
)
def test_a_turn_ends_at_eot_and_only_once(response, content, termination):
    message, how = ONE.parse_response(TOKENIZER.encode(response))
    assert (message["content"], how) == (content, termination)


def test_bytes_that_are_no_text_are_read_as_unreadable():
    message, how = ONE.parse_response([0xC3, ord("a"), END])
    assert message["content"] == "�a"
    assert how.is_clean


def test_a_tokenizer_of_another_family_is_refused_by_the_token_it_lacks():
    class Letters(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
            return list(text.encode())

    with pytest.raises(RendererError, match=r"<\|begin_of_text\|>.*hf_template"):
        get_renderer("llama3", Letters())


def test_tools_have_no_form_here_and_that_is_said():
    with pytest.raises(NotImplementedError, match="no form for tools"):
        ONE.create_conversation_prefix_with_tools([])
