"""Prompts in batches, for the recipes' own loop."""

import asyncio
from typing import Any

import pytest
from tests.recipe.tokens import ByteTokenizer
from tests.rl_core.world import (
    END,
    MODEL,
    TOKENIZER,
    Promises,
    Repeats,
    SaysYes,
    StartsLoops,
    TokenizerClient,
    service,
)

from mint import ModelInput
from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.rl.types import RLDataset
from mint.recipe.tokenizers import unregister_tokenizer
from mint.rl_core import AdapterDatasetBuilder, AdapterGroupBuilder, RLAdapter

FIVE = ["a?", "b?", "c?", "d?", "e?"]


def builder(**fields: Any) -> AdapterDatasetBuilder:
    given = {
        "adapter": SaysYes(), "prompts": FIVE, "batch_size": 2, "group_size": 3, "model_name": MODEL,
        "renderer_name": "qwen3_instruct",
    }  # fmt: skip
    return AdapterDatasetBuilder(**{**given, **fields})


def built(**fields: Any) -> RLDataset:
    return asyncio.run(builder(**fields)())[0]


def groups(dataset: RLDataset) -> list[list[AdapterGroupBuilder]]:
    found = [dataset.get_batch(index) for index in range(len(dataset))]
    assert all(isinstance(group, AdapterGroupBuilder) for batch in found for group in batch)
    return found  # pyright: ignore[reportReturnType]


def asked(dataset: RLDataset) -> list[list[str]]:
    """Per batch, what its prompts ask."""
    return [
        [TOKENIZER.decode(group.prompt.to_ints()).split("user\n")[1][:2] for group in batch]
        for batch in groups(dataset)
    ]


def test_each_prompt_is_a_group_and_the_last_batch_has_what_is_left():
    dataset = built(seed=None)

    assert asked(dataset) == [["a?", "b?"], ["c?", "d?"], ["e?"]]
    group = groups(dataset)[0][0]
    assert (group.group_size, group.stop) == (3, TOKENIZER.encode("<|im_end|>"))
    assert group.logging_tags() == ["says_yes"]
    with pytest.raises(IndexError, match="batch 3: there are 3"):
        dataset.get_batch(3)


def test_prompts_are_shuffled_by_the_seed_alone():
    def order(seed: int | None) -> list[str]:
        return [
            text for batch in asked(built(seed=seed, prompts=list("abcdefgh"))) for text in batch
        ]

    assert order(3) == order(3)
    assert sorted(order(3)) == sorted(order(None))
    assert len({tuple(order(seed)) for seed in (0, 1, 2)}) == 3
    assert order(0) != order(None)


def test_the_users_own_list_stays_as_it_is():
    prompts = list("abcdefgh")

    built(prompts=prompts)

    assert prompts == list("abcdefgh")


def test_test_prompts_are_a_batch_of_groups_of_one_in_their_order():
    _, test = asyncio.run(builder(test_prompts=list("wxyz"))())

    assert test is not None
    [batch] = groups(test)
    assert [one.group_size for one in batch] == [1] * 4
    assert [text[0] for text in asked(test)[0]] == list("wxyz")


def test_tokens_are_sent_as_they_are_and_end_with_the_tokenizers_end():
    [[group]] = groups(built(prompts=[[5, 6]]))

    assert (group.prompt.to_ints(), group.stop) == ([5, 6], [END])


def test_one_adapter_scores_all_groups():
    adapter = SaysYes()

    assert {id(one.adapter) for batch in groups(built(adapter=adapter)) for one in batch} == {
        id(adapter)
    }


class WithoutArguments(RLAdapter):
    def __init__(self) -> None:
        """Takes nothing, and is told its tokenizer by the run."""

    def __call__(self, prompt: Any, response: Any) -> float:
        return 0.0


@pytest.mark.parametrize(
    "factory", [SaysYes, WithoutArguments, lambda tokenizer: SaysYes(tokenizer), lambda: SaysYes()]
)
def test_a_class_or_a_function_makes_an_adapter_for_each_group_that_knows_the_tokenizer(
    factory: Any,
):
    made = [one.adapter for batch in groups(built(adapter=factory)) for one in batch]

    assert len({id(one) for one in made}) == 5
    assert all(one.get_tokenizer() is TOKENIZER for one in made)
    assert made[0].get_model_info().model_name == MODEL


def test_the_client_is_asked_once_for_the_tokenizer_of_all_adapters():
    unregister_tokenizer(MODEL)  # nobody else has it
    client = TokenizerClient()
    dataset = built(adapter=WithoutArguments)

    dataset.bind(client)
    made = [one.adapter for batch in groups(dataset) for one in batch]

    assert all(one.get_tokenizer() is TOKENIZER for one in made)
    assert client.asked == 1


def test_a_registered_tokenizer_is_the_adapters_too():
    adapter = SaysYes()

    built(adapter=adapter).bind(TokenizerClient(ByteTokenizer()))

    assert adapter.get_tokenizer() is TOKENIZER


def test_an_unbound_data_set_finds_the_tokenizer_before_it_asks_which_renderer_fits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("mint.recipe.tokenizers._made", {})
    monkeypatch.setattr("mint.recipe.tokenizers._found", lambda name: TOKENIZER)  # as from a server

    groups(built(adapter=SaysYes(TOKENIZER), model_name="acme/frog-7b", renderer_name=None))

    assert "is a guess" not in caplog.text


def test_a_factory_that_makes_something_else_is_named():
    with pytest.raises(ConfigurationError, match="make made int, and not an RLAdapter"):
        groups(built(adapter=_make))


def _make() -> Any:
    return 3


_make.__qualname__ = "make"


def test_an_adapter_without_a_tokenizer_gets_the_runs_and_one_with_its_own_keeps_it():
    other = object()
    without, own = SaysYes(), SaysYes(other)  # pyright: ignore[reportArgumentType]
    client = service().create_lora_training_client(MODEL).result()
    for adapter in (without, own):
        built(adapter=adapter).bind(client)

    assert without.get_tokenizer() is TOKENIZER
    assert own.tokenizer is other
    assert without.get_model_info().renderer_name == "qwen3_instruct"


def test_samples_are_asked_as_their_adapter_says_and_scored_by_it():
    adapter = Repeats()

    [[first, second]] = groups(built(adapter=adapter, prompts=["x", "y"], seed=None))

    assert TOKENIZER.decode(first.prompt.to_ints()) == "say x:"
    assert first.stop == [END]
    assert first.logging_tags() == ["repeats"]
    response = ModelInput.from_ints(TOKENIZER.encode("y<|endoftext|>"))
    assert asyncio.run(second.adapter.score(second.prompt, response)).score == 1.0
    assert adapter.asked == 0


def test_without_prompts_samples_are_asked_for_once():
    adapter = Repeats()

    dataset = built(adapter=adapter, prompts=None)

    assert len(groups(dataset)) == 1
    assert adapter.asked == 1


@pytest.mark.parametrize("kind", [Promises, StartsLoops])
def test_samples_may_be_promised_and_may_need_a_loop_of_their_own(kind: type[Repeats]):
    async def in_a_run() -> list[list[AdapterGroupBuilder]]:
        dataset, _ = await builder(adapter=kind(), prompts=None)()
        return groups(dataset)

    [[group]] = asyncio.run(in_a_run())

    assert TOKENIZER.decode(group.prompt.to_ints()) == "say yes:"


@pytest.mark.parametrize("samples", [(), None])
def test_a_data_set_without_samples_is_refused(samples: Any):
    adapter = Repeats()
    adapter.build_dataset = lambda: samples

    with pytest.raises(DataFormatError, match=r"Repeats\.build_dataset gave"):
        built(adapter=adapter, prompts=None)
    with pytest.raises(DataFormatError, match="prompts is empty"):
        built(adapter=adapter, prompts=[])


def test_a_class_cannot_be_asked_for_samples():
    with pytest.raises(ConfigurationError, match="give them as `prompts`"):
        built(adapter=Repeats, prompts=None)


@pytest.mark.parametrize("prompts", [None, [], "one question"])
def test_prompts_that_are_none_are_refused(prompts: Any):
    with pytest.raises(DataFormatError, match="prompts"):
        built(prompts=prompts)


def _scores(prompt: Any, response: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    "fields", [{"batch_size": 0}, {"group_size": 0}, {"adapter": "mine"}, {"adapter": _scores}]
)
def test_fields_that_cannot_be_meant_are_refused_when_the_config_is_made(fields: dict[str, Any]):
    [name] = fields

    with pytest.raises(ConfigurationError, match=f"^{name}="):
        builder(**fields)
