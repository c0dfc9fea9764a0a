"""What holds for every renderer of text: role_colon, llama3, hf_template, on two tokenizers each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.renderers.conversations import answers, assistant, texts, user
from tests.recipe.renderers.families import NAMES, renderer, talks
from tests.recipe.tokens import SPECIAL
from tinker import EncodedTextChunk, ModelInput

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message, get_text_content
from mint.recipe.renderers import Renderer, StreamingMessageHeader, StreamingTextDelta
from mint.recipe.renderers.layout import joined

each = pytest.mark.parametrize("name", NAMES)
some = settings(max_examples=25, deadline=None)


def prompt(renderer: Renderer, messages: list[Message], **options) -> list[int]:
    return renderer.build_generation_prompt(messages, **options).to_ints()


def completion(renderer: Renderer, messages: list[Message]) -> list[int]:
    """What the model samples to say the last message."""
    tokens, weights = renderer.weighted_example(messages)
    return [t for t, weight in zip(tokens.to_ints(), weights, strict=True) if weight]


def after(renderer: Renderer, messages: list[Message]) -> ModelInput:
    """The last prompt and what was sampled, as a rollout has them."""
    asked = renderer.build_generation_prompt(messages[:-1])
    said = EncodedTextChunk(tokens=completion(renderer, messages))
    return ModelInput(chunks=[*asked.chunks, said])


@each
@some
@given(talk=talks())
def test_a_training_example_is_its_prompt_and_then_what_is_trained(name, talk):
    one = renderer(name)
    tokens, weights = one.weighted_example(talk)

    asked = prompt(one, talk[:-1])
    assert tokens.to_ints() == asked + completion(one, talk)
    assert weights.tolist() == [0.0] * len(asked) + [1.0] * (tokens.length - len(asked))


@each
@some
@given(talk=talks())
def test_a_turn_stays_as_it_was_sampled_in_every_later_prompt(name, talk):
    one = renderer(name)
    assert one.has_extension_property
    told = talk[:1] if talk[0]["role"] == "system" else []
    turns = talk[len(told) :]
    for k in range(2, len(turns), 2):
        sampled = after(one, told + turns[:k]).to_ints()
        assert prompt(one, told + turns[: k + 1])[: len(sampled)] == sampled


@each
@some
@given(talk=talks(), question=texts())
def test_a_bridged_prompt_is_the_prompt_of_the_whole_conversation(name, talk, question):
    one = renderer(name)
    bridged = one.bridge(after(one, talk), [user(question)])
    assert bridged.to_ints() == prompt(one, [*talk, user(question)])


@each
def test_a_bridge_keeps_the_very_tokens_that_were_sampled(name):
    one = renderer(name)
    asked = prompt(one, [user("hi")])
    odd = [one.encode_text(letter)[0] for letter in "as as"]  # no tokenizer would write it so
    stop = completion(one, [user(""), assistant("")])
    sampled = ModelInput.from_ints([*asked, *odd, *stop])

    bridged = one.bridge(sampled, [user("more")])

    assert bridged.to_ints()[: sampled.length] == sampled.to_ints()
    assert bridged.chunks[0] is sampled.chunks[0]  # nothing was copied, however long it is


@each
def test_a_bridge_over_a_turn_that_was_cut_off_ends_it(name):
    one = renderer(name)
    asked = prompt(one, [user("hi")])
    begun = one.encode_text(" so" if name.startswith("role_colon") else "so")

    bridged = one.bridge(ModelInput.from_ints(asked + begun), [user("more")])

    assert bridged.to_ints() == prompt(one, [user("hi"), assistant("so"), user("more")])


@each
@some
@given(said=answers())
def test_what_was_trained_parses_into_the_message_it_was(name, said):
    one = renderer(name)
    if name.startswith("role_colon"):
        said = said.strip()  # white space around a text is not part of what is said
    message, termination = one.parse_response(completion(one, [user("q"), assistant(said)]))
    assert message == {"role": "assistant", "content": said}
    assert termination.is_stop_sequence


@each
@some
@given(said=answers())
def test_a_streamed_response_comes_in_pieces_that_make_the_message(name, said):
    one = renderer(name)
    response = completion(one, [user("q"), assistant(said)])

    header, *pieces, whole = one.parse_response_streaming(response)

    assert header == StreamingMessageHeader("assistant")
    message, _ = one.parse_response(response)
    assert whole == message
    texts = [piece.text for piece in pieces if isinstance(piece, StreamingTextDelta)]
    assert "".join(texts) == get_text_content(message)
    assert len(texts) == len(pieces)


@each
@some
@given(response=st.lists(st.integers(0, 270), max_size=12))
def test_no_sampled_tokens_are_too_strange_to_be_read(name, response):
    message, termination = renderer(name).parse_response(response)
    assert message["role"] == "assistant"
    assert isinstance(message["content"], str)
    assert termination in list(type(termination))


@each
@given(marker=st.sampled_from([text for text in SPECIAL if text.startswith("<|")]))
def test_the_text_of_a_special_token_that_a_user_types_stays_text(name, marker):
    one = renderer(name)
    special = {one.encoder.special(text) for text in SPECIAL}

    def count(messages: list[Message]) -> int:
        return sum(token in special for token in prompt(one, messages))

    typed = [user(f"a{marker}b"), assistant(f"{marker}"), user("c")]
    harmless = [user("ab"), assistant("d"), user("c")]
    assert count(typed) == count(harmless)
    assert marker in one.encoder.decode(prompt(one, typed))


@each
def test_an_empty_conversation_is_a_header_alone(name):
    one = renderer(name)
    header = prompt(one, [])
    assert header
    assert prompt(one, [user("hi")])[-2:] == header[-2:]


@each
def test_neighbouring_text_is_one_chunk_and_none_is_empty(name):
    one = renderer(name)
    assert len(one.build_generation_prompt([user(""), assistant(""), user("")]).chunks) == 1
    assert len(one.weighted_example([user(""), assistant("")])[0].chunks) == 1
    assert joined([EncodedTextChunk(tokens=[]), EncodedTextChunk(tokens=[])]).chunks == []


@each
def test_a_prefill_is_the_beginning_of_the_answer(name):
    one = renderer(name)
    begun = prompt(one, [user("hi")], prefill="so")
    assert begun == prompt(one, [user("hi")]) + one.encode_text("so")


@each
def test_content_in_parts_is_the_text_of_its_parts(name):
    one = renderer(name)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "s"}]
    assert prompt(one, [{"role": "user", "content": parts}]) == prompt(one, [user("as")])  # type: ignore[typeddict-item]


@each
@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "user", "content": [{"type": "image", "image": "x.png"}]}, "'image'"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}]}, "'thinking'"),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, "calls tools"),
        ({"role": "user"}, "no 'content'"),
        ({"content": "hi"}, "no 'role'"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(name, message, why):
    with pytest.raises(RendererError, match=why):
        renderer(name).build_generation_prompt([message])


@each
def test_torch_users_get_the_same_example_with_a_tensor(name):
    torch = pytest.importorskip("torch")
    talk = [user("q"), assistant("a")]
    tokens, weights = renderer(name).build_supervised_example(talk)
    (same, _), *others = renderer(name).build_supervised_examples(talk)

    assert isinstance(weights, torch.Tensor)
    assert weights.dtype == torch.float32
    assert weights.tolist() == renderer(name).weighted_example(talk)[1].tolist()
    assert tokens == same
    assert others == []
