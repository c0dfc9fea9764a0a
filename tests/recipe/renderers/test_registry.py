"""Renderers by name: the same one again, one's own first, and through a pickle."""

import asyncio
import logging
import pickle

import pytest
from tests.recipe.renderers.conversations import assistant, user
from tests.recipe.renderers.families import Bare, FastTokenizer
from tests.recipe.tokens import ByteTokenizer

from mint.recipe import renderers, text_encoder
from mint.recipe.exceptions import RendererError
from mint.recipe.renderers import get_renderer, register_renderer, registry, unregister_renderer
from mint.recipe.tokenizers import register_tokenizer, unregister_tokenizer


@pytest.fixture
def own():
    register_renderer("acme/bare", lambda tokenizer, images: Bare(tokenizer))
    yield "acme/bare"
    unregister_renderer("acme/bare")


def test_asked_again_it_is_the_same_renderer():
    tokenizer = ByteTokenizer()
    one = get_renderer("llama3", tokenizer)
    assert get_renderer("llama3", tokenizer) is one
    assert get_renderer("role_colon", tokenizer) is not one
    assert get_renderer("llama3", ByteTokenizer()) is not one
    assert get_renderer("llama3", tokenizer, image_processor=object()) is not one


def test_a_fast_tokenizer_is_copied_once_however_many_renderers_read_it(monkeypatch):
    copies = []
    copy = text_encoder._copy_of
    monkeypatch.setattr(text_encoder, "_copy_of", lambda fast: copies.append(fast) or copy(fast))
    tokenizer = FastTokenizer()

    for name in ("llama3", "role_colon", "qwen3", "llama3", "qwen3_instruct"):
        get_renderer(name, tokenizer)

    assert copies == [tokenizer.backend_tokenizer]


def test_only_the_renderers_made_last_are_kept():
    tokenizers = [ByteTokenizer() for _ in range(registry.KEPT + 1)]
    first = get_renderer("role_colon", tokenizers[0])
    for tokenizer in tokenizers[1:]:
        get_renderer("role_colon", tokenizer)
    assert get_renderer("role_colon", tokenizers[0]) is not first
    assert len(registry._made) == registry.KEPT


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_every_name_of_ours_makes_a_renderer_that_asks_and_reads(name):
    tokenizer = FastTokenizer()
    one = get_renderer(name, tokenizer)
    assert one.build_generation_prompt([user("hi")]).length > 3
    message, termination = one.parse_response(tokenizer.encode("ho"))
    assert (message["role"], bool(termination)) == ("assistant", False)


def test_an_unknown_name_lists_the_known_ones(own):
    with pytest.raises(
        RendererError, match=r"'gpt9'.*acme/bare, hf_template, llama3, qwen3, "
    ) as refused:
        get_renderer("gpt9", ByteTokenizer())
    assert isinstance(refused.value, ValueError)


def test_a_name_of_ones_own_comes_first_and_goes_again():
    tokenizer = ByteTokenizer()
    ours = get_renderer("llama3", tokenizer)
    register_renderer("llama3", lambda tokenizer, images: Bare(tokenizer))
    try:
        assert isinstance(get_renderer("llama3", tokenizer), Bare)
        assert renderers.is_renderer_registered("llama3")
        assert renderers.get_registered_renderer_names() == ["llama3"]
    finally:
        assert unregister_renderer("llama3")
    assert type(get_renderer("llama3", tokenizer)) is type(ours)
    assert not unregister_renderer("llama3")


def test_a_factory_gets_the_image_processor():
    seen = []
    register_renderer(
        "acme/seeing", lambda tokenizer, images: seen.append(images) or Bare(tokenizer)
    )
    try:
        get_renderer("acme/seeing", ByteTokenizer(), "processor")
    finally:
        unregister_renderer("acme/seeing")
    assert seen == ["processor"]


# ------------------------------------------------------------------ pickles


def test_a_pickle_holds_two_names_and_is_rebuilt_from_them(own):
    register_tokenizer("acme/bytes", ByteTokenizer)
    try:
        one = get_renderer(own, ByteTokenizer(), model_name="acme/bytes")
        pickled = pickle.dumps(one)
        again = pickle.loads(pickled)
    finally:
        unregister_tokenizer("acme/bytes")
    assert len(pickled) < 200
    assert isinstance(again, Bare)
    assert again.build_generation_prompt([user("a")]) == one.build_generation_prompt([user("a")])


def test_a_renderer_that_no_name_leads_to_cannot_be_pickled():
    with pytest.raises(RendererError, match="get_renderer"):
        pickle.dumps(Bare(ByteTokenizer()))


def test_a_pickle_without_a_models_name_says_what_is_missing(own):
    pickled = pickle.dumps(get_renderer(own, ByteTokenizer()))
    with pytest.raises(RendererError, match="model_name="):
        pickle.loads(pickled)


# ------------------------------------------------------------------ threads


@pytest.mark.parametrize("name", ["qwen3", "hf_template"])
def test_64_groups_render_in_threads_while_the_user_encodes_too(name, caplog):
    """Encoding with and without special tokens flips a switch of a fast tokenizer; from several
    threads that fails with "Already borrowed". Ours reads copies, so only the user's own calls
    can meet, and those are made one after another here."""
    tokenizer = FastTokenizer()
    talk = [user("as<|im_end|> if " * 20), assistant("b"), user("c" * 50)]
    expected = get_renderer(name, tokenizer).build_generation_prompt(talk)

    async def group() -> None:
        renderer = get_renderer(name, tokenizer)
        for _ in range(4):
            assert await asyncio.to_thread(renderer.build_generation_prompt, talk) == expected
            assert (await asyncio.to_thread(renderer.parse_response, expected.to_ints()))[0]
            tokenizer.backend_tokenizer.encode_special_tokens = True
            tokenizer.backend_tokenizer.encode_special_tokens = False

    async def everyone() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(64):
                tasks.create_task(group())

    with caplog.at_level(logging.ERROR):
        asyncio.run(everyone())
    assert tokenizer.backend_tokenizer.encode_special_tokens is False
