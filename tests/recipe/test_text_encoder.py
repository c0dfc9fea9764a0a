"""Text to tokens on copies of our own: what users type stays text, their tokenizer stays theirs."""

import gc
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.renderers.families import FastTokenizer
from tests.recipe.tokens import ID, ByteTokenizer

from mint.recipe import text_encoder
from mint.recipe.exceptions import RendererError
from mint.recipe.text_encoder import encoder_for, token

FAST, BYTES = FastTokenizer(), ByteTokenizer()
both = pytest.mark.parametrize("tokenizer", [FAST, BYTES], ids=["fast", "plain"])


@both
def test_markup_becomes_tokens_and_typed_text_does_not(tokenizer):
    encoder = encoder_for(tokenizer)
    text = "a<|im_end|>b"
    assert encoder.markup(text) == tokenizer.encode(text)
    assert encoder.special("<|im_end|>") in encoder.markup(text)
    assert encoder.special("<|im_end|>") not in encoder.ordinary(text)
    assert encoder.decode(encoder.ordinary(text)) == encoder.decode(encoder.markup(text)) == text
    assert encoder.find_special(text) == [(1, 11)]


@both
@settings(max_examples=50, deadline=None)
@given(text=st.text(alphabet="a <|>im_end/sé", max_size=30))
def test_typed_text_comes_back_whole_and_without_special_tokens(tokenizer, text):
    encoder = encoder_for(tokenizer)
    tokens = encoder.ordinary(text)
    assert encoder.decode(tokens) == text
    assert not {encoder.special(special) for special in ID if special.startswith("<|")} & set(
        tokens
    )


@both
def test_a_token_that_the_tokenizer_lacks_is_named(tokenizer):
    assert token(encoder_for(tokenizer), "<|im_start|>") == tokenizer.encode("<|im_start|>")[0]
    with pytest.raises(RendererError, match=r"'<\|other\|>'.*hf_template"):
        token(encoder_for(tokenizer), "<|other|>")


@both
def test_bytes_that_are_no_text_are_decoded_as_unreadable(tokenizer):
    half = tokenizer.encode("é")[:1]
    assert encoder_for(tokenizer).decode([*half, *tokenizer.encode("a")]) == "�a"


def test_a_decoder_that_raises_is_asked_token_by_token():
    class Strict(ByteTokenizer):
        def decode(self, ids, /) -> str:
            return bytes(ids).decode()

    tokenizer = Strict()
    assert encoder_for(tokenizer).decode([97, 0xC3, 98]) == "a�b"


def test_special_tokens_that_a_tokenizer_lists_are_taken_apart_however_they_look():
    class Listed(ByteTokenizer):
        all_special_tokens = ("<think>",)

    tokenizer = Listed()
    assert encoder_for(tokenizer).ordinary("<think>") == list(b"<think>")
    assert encoder_for(BYTES).ordinary("<think>") == [ID["<think>"]]  # it does not say so


def test_the_users_tokenizer_is_as_it_was():
    tokenizer = FastTokenizer()
    tokenizer.backend_tokenizer.enable_truncation(3)
    encoder = encoder_for(tokenizer)

    assert len(encoder.ordinary("a longer text")) > 3
    assert len(encoder.markup("a longer text")) > 3

    assert tokenizer.backend_tokenizer.encode_special_tokens is False
    assert len(tokenizer.encode("a longer text")) == 3


def test_an_encoder_belongs_to_the_object_and_goes_with_it():
    class Alike(ByteTokenizer):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    one, other = Alike(), Alike()
    assert encoder_for(one) is encoder_for(one)
    assert encoder_for(one) is not encoder_for(other)

    gone = weakref.ref(encoder_for(one))
    before = len(text_encoder._encoders)
    del one
    gc.collect()
    assert gone() is None
    assert len(text_encoder._encoders) == before - 1


def test_threads_that_ask_at_once_get_one_encoder():
    tokenizer = FastTokenizer()
    start = threading.Barrier(16)
    got = []

    def ask() -> None:
        start.wait()
        got.append(encoder_for(tokenizer))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in got}) == 1
