"""RLAdapter as a class that others write: what is refused when it is created, and what it offers."""

import asyncio
import copy
import logging
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.recipe.tokens import ByteTokenizer
from tests.rl_core.world import TOKENIZER, TokenizerClient

import mint
from mint import ModelInput
from mint.recipe.exceptions import ConfigurationError
from mint.rl_core import ModelInfo, Reward, RLAdapter, ScoringContext
from mint.rl_core.context import NO_CONTEXT
from mint.rl_core.scoring import score_group
from mint.testing import tiny_model

HI = TOKENIZER.encode("hi<|endoftext|>")


class Plain(RLAdapter):
    """The share of h in a response."""

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        tokens = response.to_ints()
        return Reward(tokens.count(ord("h")) / len(tokens))


class Awaiting(RLAdapter):
    async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
        await asyncio.sleep(0)
        return Reward(len(response.to_ints()))


class Words(RLAdapter):
    def make_prompt(self, sample: str, tokenizer: Any) -> list[int]:
        return tokenizer.encode(sample)

    def compute_reward(self, response: str, sample: str) -> float:
        return float(response == sample)


# ------------------------------------------------------ called by hand


def by_hand(env: Any, *arguments: Any) -> Any:
    """As in a script without types: `env(prompt, response)`."""
    return env(*arguments)


def test_an_adapter_is_called_with_model_inputs_or_lists_of_tokens():
    env = Plain(TOKENIZER)

    assert by_hand(env, ModelInput.from_ints([1]), ModelInput.from_ints(HI)) == Reward(1 / 3)
    assert by_hand(env, [1], HI) == by_hand(env, (1,), SimpleNamespace(tokens=HI)) == Reward(1 / 3)


@pytest.mark.parametrize(
    ("response", "advice"), [("hi", "encode it first"), (None, "NoneType"), (["h"], "list of token ids")]
)  # fmt: skip
def test_a_response_that_is_no_tokens_is_refused_with_advice(response: Any, advice: str):
    with pytest.raises(TypeError, match=f"response is .*{advice}"):
        by_hand(Plain(), [1], response)


def test_one_that_awaits_can_be_called_by_hand_where_no_loop_runs():
    assert by_hand(Awaiting(), [1], HI) == Reward(3)


async def test_one_that_awaits_names_score_inside_a_loop():
    with pytest.raises(RuntimeError, match=r"await env\.score\(prompt, response\)"):
        by_hand(Awaiting(), [1], HI)

    assert await Awaiting().score([1], HI) == Reward(3)


async def test_an_async_call_is_awaited_by_hand_and_by_score():
    class Env(RLAdapter):
        async def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(prompt.length)

    assert await by_hand(Env(), [1, 2], HI) == await Env().score([1, 2], HI) == Reward(2)


async def test_acall_goes_before_call_where_there_are_both():
    class Env(Plain):
        async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(7)

    assert await Env().score([1], HI) == Reward(7)
    with pytest.raises(TypeError, match="no acall of its own"):
        await Plain().acall(*map(ModelInput.from_ints, ([1], HI)))


def test_a_class_that_only_scores_batches_scores_one_as_well():
    class Model(RLAdapter):
        def score_batch(self, pairs: Any) -> Any:
            return [len(response.to_ints()) for _, response in pairs]

    assert by_hand(Model(), [1], HI) == Reward(3)


def test_a_context_is_given_to_whoever_asks_for_it():
    class Env(RLAdapter):
        def __call__(self, prompt: Any, response: Any, context: ScoringContext) -> Reward:
            return Reward(context.stop_reason == "length")

    cut = ScoringContext(stop_reason="length")
    assert asyncio.run(Env().score([1], HI, cut)) == by_hand(Env(), [1], HI, cut) == Reward(1)
    assert asyncio.run(Env().score([1], HI)) == by_hand(Env(), [1], HI) == Reward(0)
    assert asyncio.run(Plain().score([1], HI, cut)) == Reward(1 / 3)


def test_a_subclass_may_go_on_from_its_parents_score():
    class Halved(Plain):
        def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(super().__call__(prompt, response).score / 2)

    assert asyncio.run(Halved().score([1], HI)) == by_hand(Halved(), [1], HI) == Reward(1 / 6)


# ------------------------------------------- refused when the class is created


def test_a_class_without_a_way_to_score_is_refused():
    with pytest.raises(TypeError, match=r"Env has no way to score\. Write `def __call__"):

        class Env(RLAdapter):
            def call(self, prompt: Any, response: Any) -> float:
                return 1.0


def test_a_class_with_two_shapes_is_refused():
    with pytest.raises(TypeError, match="Both has compute_reward and make_prompt and __call__"):

        class Both(Words):
            def __call__(self, prompt: Any, response: Any) -> float:
                return 1.0


def test_half_of_the_sample_based_shape_is_refused():
    with pytest.raises(TypeError, match="Env has make_prompt but no compute_reward"):

        class Env(RLAdapter):
            def make_prompt(self, sample: Any, tokenizer: Any) -> list[int]:
                return [1]


def test_an_abstract_base_leaves_scoring_to_its_subclasses():
    class Base(RLAdapter, abstract=True):
        def make_prompt(self, sample: Any, tokenizer: Any) -> list[int]:
            return [1]

    class Whole(Base):
        def compute_reward(self, response: str, sample: Any) -> float:
            return 1.0

    assert Whole().make_prompt(1, None) == [1]
    with pytest.raises(TypeError, match="Base is abstract"):
        by_hand(Base(), [1], [2])


def test_tokens_alone_are_no_sample():
    with pytest.raises(TypeError, match=r"Words scores samples .*run_grpo"):
        by_hand(Words(), [1], HI)
    with pytest.raises(TypeError, match="Words scores samples"):
        asyncio.run(Words().score([1], HI))
    with pytest.raises(NotImplementedError, match=r"no build_dataset\(self\)"):
        Words().build_dataset()


def test_a_mixin_that_is_no_adapter_may_bring_the_method():
    class Scores:
        def __call__(self, prompt: Any, response: Any) -> float:
            return 0.25

    class Env(Scores, RLAdapter): ...

    assert asyncio.run(Env().score([1], HI)) == Reward(0.25)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (lambda self, response: 1.0, r"cannot be called with \(prompt, response\): too many"),
        (lambda self: 1.0, "too many positional arguments"),
        (lambda self, prompt, response, answer: 1.0, "missing a required argument: 'answer'"),
        (lambda self, prompt, response, *, answer: 1.0, "answer"),
    ],
)
def test_a_method_with_other_parameters_is_refused_with_what_to_write(method: Any, said: str):
    with pytest.raises(
        TypeError, match=rf"Env\.__call__.*{said}.*[\s\S]*def __call__\(self, prompt"
    ):
        type("Env", (RLAdapter,), {"__call__": method})


@pytest.mark.parametrize(
    "method",
    [lambda self, *both: 1.0, lambda self, p, r, verbose=False: 1.0, lambda self, p, r, **more: 1.0,
     lambda self, p, r, *, context: 1.0, staticmethod(lambda p, r: 1.0)],
)  # fmt: skip
def test_a_method_that_can_be_called_is_taken_however_it_is_written(method: Any):
    env = type("Env", (RLAdapter,), {"__call__": method})()

    assert asyncio.run(env.score([1], HI)) == Reward(1)
    assert by_hand(env, [1], HI) == 1.0


def test_a_decorated_acall_is_awaited_though_it_looks_plain():
    def traced(method: Any) -> Any:
        return lambda *arguments: method(*arguments)

    class Env(RLAdapter):
        @traced
        async def acall(self, prompt: Any, response: Any) -> float:
            await asyncio.sleep(0)
            return 0.5

    assert asyncio.run(Env().score([1], HI)) == Reward(0.5)


def test_a_method_that_yields_is_refused():
    with pytest.raises(TypeError, match=r"Yields\.__call__ yields"):

        class Yields(RLAdapter):
            def __call__(self, prompt: Any, response: Any) -> Any:
                yield 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout_s", -1), ("timeout_s", 0), ("timeout_s", "5"), ("timeout_s", float("nan")),
     ("timeout_s", float("inf")), ("timeout_s", True), ("timeout_score", float("nan")),
     ("timeout_score", None), ("error_score", "0"), ("max_concurrency", 0), ("max_concurrency", 1.5),
     ("max_concurrency", None), ("max_concurrency", True), ("blocking", None), ("blocking", "no")],
)  # fmt: skip
def test_a_setting_that_cannot_be_meant_is_refused_by_name_and_value(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=rf"Env\.{name} = .*it has to be"):
        type("Env", (Plain,), {name: value})
    env = Plain()
    setattr(env, name, value)
    with pytest.raises(ConfigurationError, match=rf"Plain\.{name} = "):
        asyncio.run(env.score([1], HI))


class AwaitingWords(RLAdapter):
    def make_prompt(self, sample: str, tokenizer: Any) -> list[int]:
        return tokenizer.encode(sample)

    async def compute_reward(self, response: str, sample: str) -> float:
        return 1.0


class Batches(Awaiting):
    def score_batch(self, pairs: Any) -> list[float]:
        return [1.0] * len(pairs)


@pytest.mark.parametrize(
    ("base", "method"),
    [(Plain, "__call__"), (Words, "compute_reward"), (Batches, "score_batch")],
)
def test_a_limit_on_what_cannot_be_cut_is_refused(base: type, method: str):
    with pytest.raises(
        ConfigurationError, match=rf"timeout_s=2.* cannot cut .*{method}.*blocking="
    ):
        type("Env", (base,), {"timeout_s": 2, "blocking": False})


@pytest.mark.parametrize("base", [Awaiting, AwaitingWords])
def test_a_limit_on_what_awaits_needs_no_thread(base: type):
    type("Env", (base,), {"timeout_s": 2, "blocking": False})


@pytest.mark.parametrize("base", [Plain, Batches])
def test_a_limit_that_an_object_sets_on_what_cannot_be_cut_is_refused_as_well(base: type):
    env = base()
    env.timeout_s, env.blocking = 2, False

    one = ModelInput.from_ints([1])
    with pytest.raises(ConfigurationError, match=r"timeout_s=2.* cannot cut"):
        asyncio.run(score_group(env, [(one, one)], [NO_CONTEXT]))


def test_a_setting_that_is_nearly_right_is_pointed_out(caplog: pytest.LogCaptureFixture):
    type(
        "Env", (Plain,), {"timeout": 5, "max_concurrent": 2, "answer": 42, "timeouts_seen": "none"}
    )

    assert [record.getMessage() for record in caplog.records] == [
        "Env.timeout is no setting of an adapter; did you mean timeout_s?",
        "Env.max_concurrent is no setting of an adapter; did you mean max_concurrency?",
    ]


# ----------------------------------------------------------------------- name


def test_a_class_has_the_name_of_its_metrics_in_snake_case():
    class MathVerificationEnv(Plain): ...

    class HTTPScore2D(Plain): ...

    class Named(Plain):
        name = "my/maths"

    class Heir(Named): ...

    class Derived(Named):
        name = None  # type: ignore[assignment]

    assert MathVerificationEnv.name == MathVerificationEnv().name == "math_verification_env"
    assert HTTPScore2D.name == "http_score2_d"
    assert (Named.name, Heir.name, Derived.name) == ("my/maths", "my/maths", "derived")


# ----------------------------------------------------- without super().__init__()


def test_an_init_of_ones_own_may_forget_the_base():
    class Env(RLAdapter):
        def __init__(self, tok: Any, answer: int) -> None:
            self.tokenizer = tok
            self.answer = answer

        def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(self.response_text(response) == str(self.answer))

    env = Env(TOKENIZER, 4)

    assert env.get_tokenizer() is TOKENIZER
    assert env.get_model_info() == ModelInfo()
    assert asyncio.run(env.score([1], TOKENIZER.encode("4"))) == Reward(1)
    env.rng([1], [2]).random()


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_dataclass_can_be_an_adapter(is_frozen: bool):
    @dataclass(frozen=is_frozen)
    class Env(RLAdapter):
        answer: int

        def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
            return Reward(self.response_text(response) == str(self.answer))

    env = Env(4)
    env.bind(TokenizerClient(), base_model="test/tiny", lora_rank=8)

    assert asyncio.run(env.score([1], TOKENIZER.encode("4"))) == Reward(1)
    assert env.get_model_info().lora_rank == 8
    assert env == Env(4)


def test_fields_of_a_dataclass_keep_their_order_and_have_no_defaults_of_ours():
    @dataclass
    class Env(RLAdapter):
        tokenizer: Any
        seed: int | None
        answer: int

        async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
            return self.answer

    env = Env(TOKENIZER, 3, 4)

    assert asyncio.run(env.score([1], HI)) == Reward(4, {"seed": 3})
    assert env.get_tokenizer() is TOKENIZER
    with pytest.raises(TypeError, match="missing 3 required"):
        Env()  # pyright: ignore[reportCallIssue]


def test_a_misspelt_attribute_is_no_none():
    with pytest.raises(AttributeError, match="'Plain' object has no attribute 'tokeniser'"):
        _ = Plain().tokeniser  # pyright: ignore[reportAttributeAccessIssue]


def test_a_missing_tokenizer_says_how_to_give_one():
    with pytest.raises(RuntimeError, match=r"Plain\(training_client\.get_tokenizer\(\)\)"):
        Plain().get_tokenizer()


# ------------------------------------------------------------ tokens and text


def test_text_is_decoded_without_special_tokens():
    tokens = TOKENIZER.encode("<think>no</think>hi<|endoftext|>")

    assert Plain(TOKENIZER).response_text(ModelInput.from_ints(tokens)) == "<think>no</think>hi"


def test_text_of_a_fast_tokenizer_keeps_what_is_not_special(tmp_path: Path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tiny_model(tmp_path).folder))
    tokens = [
        *tokenizer.encode("<|im_start|>5 > 4", add_special_tokens=False),
        0xFF,
        tokenizer.eos_token_id,
    ]

    assert Plain(tokenizer).response_text(tokens) == "5 > 4\ufffd"


# -------------------------------------------------------------------- random


def test_with_a_seed_numbers_depend_on_the_tokens_alone():
    env, again, other = (Plain(seed=seed) for seed in (1, 1, 2))

    def drawn(env: Plain, prompt: Any, response: Any) -> float:
        return env.rng(prompt, response).random()

    assert drawn(env, [1, 2], [3]) == drawn(env, [1, 2], [3]) == drawn(again, [1, 2], [3])
    cut = mint.types.ModelInput(
        chunks=[mint.types.EncodedTextChunk(tokens=[1]), mint.types.EncodedTextChunk(tokens=[2])]
    )
    assert drawn(env, cut, [3]) == drawn(env, [1, 2], [3])
    different = [
        drawn(env, [1], [2, 3]),
        drawn(env, [12], [3]),
        drawn(other, [1, 2], [3]),
        drawn(env, [1, 2], [3]),
    ]
    assert len(set(different)) == 4


def test_a_seeds_numbers_are_the_same_in_another_process():
    script = """
from mint.rl_core import RLAdapter
class Env(RLAdapter):
    def __call__(self, prompt, response): return 0
print(Env(seed=5).rng([1, 2], [3]).random())
"""
    drawn = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True,
        check=True,
    ).stdout.strip()  # fmt: skip
    assert drawn == str(Plain(seed=5).rng([1, 2], [3]).random())


def test_without_a_seed_numbers_differ_each_time():
    assert Plain().rng([1], [2]).random() != Plain().rng([1], [2]).random()


def test_a_seed_is_noted_in_the_metadata_unless_the_reward_has_its_own():
    class Env(RLAdapter):
        async def acall(self, prompt: Any, response: Any) -> Reward:
            return Reward(1, {"seed": 9} if response.length > 1 else {"a": 1})

    async def metadata(env: RLAdapter, response: Any) -> Any:
        return (await env.score([1], response)).metadata

    assert asyncio.run(metadata(Env(seed=3), [1])) == {"seed": 3, "a": 1}
    assert asyncio.run(metadata(Env(seed=3), [1, 2])) == {"seed": 9}
    assert asyncio.run(metadata(Env(), [1])) == {"a": 1}


def test_a_seed_is_a_whole_number():
    with pytest.raises(TypeError):
        Plain(seed="x")  # type: ignore[arg-type]


# ------------------------------------------------------------------ the model


def test_an_adapter_is_told_its_model_by_the_run():
    env = Plain()
    env.bind(TokenizerClient(), base_model="Qwen/Qwen3-0.6B", lora_rank=16)

    info = env.get_model_info()
    assert (info.model_name, info.family, info.renderer_name) == (
        "Qwen/Qwen3-0.6B",
        "qwen3",
        "qwen3",
    )
    assert (info.lora_rank, info.vocab_size, info.context_length) == (16, None, None)
    assert env.get_tokenizer() is TOKENIZER


def test_what_a_run_has_told_is_looked_up_no_more():
    class Named(ByteTokenizer):
        asked = 0

        @property
        def name_or_path(self) -> str:
            self.asked += 1
            return "Qwen/Qwen3-0.6B"

    env, tokenizer = Plain(), Named()
    env.bind(TokenizerClient(tokenizer), base_model="Qwen/Qwen3-0.6B")
    told = tokenizer.asked

    assert env.get_model_info() is env.get_model_info()
    assert tokenizer.asked == told
    env.tokenizer = ByteTokenizer()  # another one may know more
    assert env.get_model_info() == env.model_info


def test_what_the_adapter_was_given_stays():
    own, given = ByteTokenizer(), ModelInfo(family="mine", context_length=100)
    env = Plain(own, model_info=given)
    client = TokenizerClient()
    env.bind(client, base_model="Qwen/Qwen3-0.6B", renderer_name="qwen3_disable_thinking")

    assert client.asked == 0
    assert env.get_tokenizer() is own
    info = env.get_model_info()
    assert (info.family, info.context_length) == ("mine", 100)
    assert (info.model_name, info.renderer_name) == ("Qwen/Qwen3-0.6B", "qwen3_disable_thinking")


def test_an_adapter_of_a_second_run_forgets_the_first():
    env = Plain(model_info=ModelInfo(context_length=100))
    second = ByteTokenizer()
    env.bind(TokenizerClient(), base_model="Qwen/Qwen3-0.6B", lora_rank=16)
    env.bind(TokenizerClient(second), base_model="meta-llama/Llama-3.2-1B-Instruct")

    info = env.get_model_info()
    assert (info.family, info.lora_rank, info.context_length) == ("llama", None, 100)
    assert env.get_tokenizer() is second


@pytest.mark.parametrize(
    ("name", "family"),
    [("Qwen/Qwen3-8B-Base", "qwen3"), ("Qwen/Qwen3.5-4B", "qwen3_5"), ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2_5"),
     ("meta-llama/Meta-Llama-3-8B-Instruct", "llama"), ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm"),
     ("acme/frog-7b", "frog"), ("Qwen/Qwen3-VL-8B-Instruct", "qwen3")],
)  # fmt: skip
def test_a_tokenizers_name_tells_the_family(name: str, family: str):
    tokenizer = ByteTokenizer()
    tokenizer.name_or_path = name  # type: ignore[attr-defined]

    info = Plain(tokenizer).get_model_info()

    assert (info.model_name, info.family) == (name, family)


def test_a_tokenizers_folder_tells_family_and_context_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from transformers import AutoTokenizer

    tiny = tiny_model(tmp_path, "a" * 32, family="qwen3", max_context=256)  # a server's: no name
    tokenizer = AutoTokenizer.from_pretrained(str(tiny.folder))
    monkeypatch.setattr(socket, "socket", None)

    info = Plain(tokenizer).get_model_info()

    assert info == ModelInfo(
        model_name=None, family="qwen3", renderer_name=None, vocab_size=len(tokenizer), context_length=256
    )  # fmt: skip


def test_a_folder_in_a_hubs_cache_has_the_models_name(tmp_path: Path):
    snapshot = tmp_path / "models--Qwen--Qwen3-0.6B" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    tokenizer = ByteTokenizer()
    tokenizer.name_or_path = str(snapshot)  # type: ignore[attr-defined]

    assert Plain(tokenizer).get_model_info().model_name == "Qwen/Qwen3-0.6B"


# ------------------------------------------------------------------- pickling


def test_an_adapter_travels_to_another_process_after_it_has_scored():
    env = Plain(TOKENIZER, seed=4)
    asyncio.run(env.score([1], HI))

    there = pickle.loads(pickle.dumps(env))

    assert asyncio.run(there.score([1], HI)) == asyncio.run(env.score([1], HI))
    assert there.seed == 4
    assert by_hand(copy.deepcopy(env), [1], HI) == by_hand(env, [1], HI)


# ------------------------------------------------------------------- a step


def test_a_step_is_told_in_one_line(capsys: pytest.CaptureFixture[str]):
    Words().evaluate(3, [1.0, 0.5, 0.0, -1.0, 0.0, 1.0, 1.0, 1.0], 12)
    Words().evaluate(4, [], 0)

    assert capsys.readouterr().out == (
        "Step 3: accuracy=62.5%, datums=12\nStep 4: accuracy=0.0%, datums=0\n"
    )


def test_warnings_go_to_the_packages_own_logger(caplog: pytest.LogCaptureFixture):
    class Generous(RLAdapter):
        def __call__(self, prompt: Any, response: Any) -> float:
            return 100.0

    with caplog.at_level(logging.WARNING, logger="mint.rl_core"):
        for _ in range(2):
            asyncio.run(Generous().score([1], HI))

    (record,) = caplog.records
    assert record.name == "mint.rl_core"
    assert "Generous.__call__ scored 100.0" in record.getMessage()


if TYPE_CHECKING:
    # Forms that people write, for `make types`: none of them is an incompatible override.

    class _WithContext(RLAdapter):
        def __call__(
            self, prompt: ModelInput, response: ModelInput, context: ScoringContext
        ) -> Reward: ...

    class _WithLimitOfItsOwn(RLAdapter):
        def __init__(self, limit_s: float) -> None:
            self.timeout_s = limit_s

        async def acall(self, p: ModelInput, r: ModelInput) -> float: ...

    class _ManyAtOnce(RLAdapter):
        async def score_batch(
            self, pairs: Sequence[tuple[ModelInput, ModelInput]]
        ) -> list[Reward]: ...

    class _OfSamples(RLAdapter):
        def make_prompt(self, question: str, tok: Any) -> list[int]: ...

        async def compute_reward(self, text: str, question: str) -> float: ...
