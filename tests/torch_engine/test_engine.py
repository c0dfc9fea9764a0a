"""TorchEngine from the outside: whole operations in, one outcome each out."""

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from mint.core.datum import Datum, ReverseKLDatum
from mint.core.errors import ConfigError, Fault, UnknownModelError
from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import (
    CreateModel,
    CreateModelFrom,
    DiscardGradients,
    Failure,
    ForwardBackward,
    InterpolateCheckpoints,
    Interpolated,
    LoadWeights,
    ModelReady,
    OptimStep,
    PassResult,
    PinSampler,
    ReleaseSampler,
    ReverseKL,
    ReverseKLResult,
    Sample,
    SampleResult,
    Saved,
    SaveWeights,
    StepResult,
    UnloadModel,
)
from mint.core.optim import AdamParams
from mint.core.sampling import SamplingParams, Stop
from mint.engine.protocol import Doing, Work
from mint.torch_engine import samplers
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.models.tiny import build_tiny
from mint.torch_engine.settings import EngineSettings

PROMPT = np.frombuffer(b"What is 2 + 3? ", np.uint8).astype(np.int32)


class Bench:
    """An engine and the running of operations on it."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self._ids = (OperationId(str(n)) for n in itertools.count(1))

    def start(self, operation, folder: Path | None = None) -> OperationId:
        operation_id = next(self._ids)
        self.engine.start(Work(operation_id, operation, folder))
        return operation_id

    def finish(self) -> dict[OperationId, object]:
        found = {}
        while self.engine.busy:
            for outcome in self.engine.step():
                assert outcome.operation_id not in found
                found[outcome.operation_id] = outcome.result
        return found

    def run(self, operation, folder: Path | None = None):
        operation_id = self.start(operation, folder)
        return self.finish()[operation_id]

    def create(self, model_id: str, **lora) -> ModelId:
        spec = LoraSpec(**{"rank": 4, "seed": 1, **lora})
        made = self.run(CreateModel(model_id=ModelId(model_id), base_model="tiny", lora=spec))
        assert isinstance(made, ModelReady)
        return ModelId(model_id)

    def train(self, model_id: ModelId, steps: int = 1, data=None) -> list[float]:
        losses = []
        for _ in range(steps):
            result = self.run(passes(model_id, data=data or (datum(),)))
            assert isinstance(result, PassResult), result
            losses.append(result.metrics["loss:sum"])
            stepped = self.run(step(model_id))
            assert isinstance(stepped, StepResult), stepped
        return losses

    def sample(self, weights: str | None = None, folder: Path | None = None, **change):
        result = self.run(sample(weights, **change), folder)
        assert isinstance(result, SampleResult), result
        return result


def datum(text: bytes = b"What is 2 + 3? 5 and nothing else") -> Datum:
    tokens = np.frombuffer(text, np.uint8).astype(np.int32)
    return Datum(ModelInput.from_ints(tokens[:-1]), {"target_tokens": tokens[1:].astype(np.int64)})


def passes(model_id, data=None, **change) -> ForwardBackward:
    return ForwardBackward(
        model_id=model_id, data=data or (datum(),), loss_fn="cross_entropy", **change
    )


def step(model_id, learning_rate=1e-2) -> OptimStep:
    return OptimStep(model_id=model_id, params=AdamParams(learning_rate=learning_rate))


def sample(weights: str | None = None, **change) -> Sample:
    never = Stop(eos=False)
    params = SamplingParams(
        **{"max_tokens": 8, "seed": 3, "stop": never, **change.pop("params", {})}
    )
    return Sample(
        sampler_id=SamplerId(weights or "base"), base_model="tiny", weights=weights,
        prompt=ModelInput.from_ints(PROMPT), params=params, **change,
    )  # fmt: skip


def tokens_of(result: SampleResult) -> list[list[int]]:
    return [sequence.tokens.tolist() for sequence in result.sequences]


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


def make_engine(folder: Path, scratch: Path, **settings) -> TorchEngine:
    return TorchEngine(EngineSettings(models=(f"tiny={folder}",), scratch=scratch, **settings))


@pytest.fixture
def bench(tiny_folder, tmp_path) -> Bench:
    return Bench(make_engine(tiny_folder, tmp_path / "scratch"))


def test_training_lowers_the_loss_and_moves_the_version(bench):
    model = bench.create("m")
    losses = bench.train(model, steps=5)
    assert losses[-1] < 0.6 * losses[0]
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    assert bench.sample("s").weights_version == 5
    assert bench.sample().weights_version == 0


def test_a_new_adapter_samples_as_the_base_model_does(bench):
    model = bench.create("m")
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    assert tokens_of(bench.sample("s")) == tokens_of(bench.sample())


def test_a_pinned_sampler_does_not_change_when_training_goes_on(bench):
    model = bench.create("m")
    bench.train(model, steps=3)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s3")))
    before = bench.sample("s3", num_samples=2)

    bench.train(model, steps=3)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s6")))

    after = bench.sample("s3", num_samples=2)
    assert tokens_of(after) == tokens_of(before)
    np.testing.assert_array_equal(after.sequences[0].logprobs, before.sequences[0].logprobs)
    assert (after.weights_version, bench.sample("s6").weights_version) == (3, 6)
    assert tokens_of(bench.sample("s6", num_samples=2)) != tokens_of(before)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_trainer_and_sampler_agree_on_every_logprob(bench, temperature):
    model = bench.create("m")
    bench.train(model, steps=3)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    drawn = bench.sample("s", num_samples=6, params={"temperature": temperature, "max_tokens": 20})

    data = []
    for sequence in drawn.sequences:
        ids = np.concatenate([PROMPT, sequence.tokens])
        targets = ids[1:].astype(np.int64)
        data.append(Datum(ModelInput.from_ints(ids[:-1]), {"target_tokens": targets}))
    result = bench.run(
        passes(model, tuple(data), forward_only=True, loss_fn_config={"temperature": temperature})
    )

    for logp, sequence in zip(result.logprobs, drawn.sequences, strict=True):
        gap = np.abs(logp[len(PROMPT) - 1 :] - sequence.logprobs)
        assert gap.max() <= 1e-4


def test_models_on_one_base_train_side_by_side_as_if_alone(bench, tiny_folder, tmp_path):
    a, b = bench.create("a", rank=4, seed=1), bench.create("b", rank=7, seed=2)
    other = (datum(b"something else altogether"),)
    for _ in range(3):
        for operation in (passes(a), passes(b, other), step(b), step(a)):
            bench.start(operation)
    together = bench.finish()
    assert not [r for r in together.values() if isinstance(r, Failure)]
    weights = {m: bench.engine._models[m].adapter.flat.clone() for m in (a, b)}

    alone = Bench(make_engine(tiny_folder, tmp_path / "alone"))
    alone.train(alone.create("a", rank=4, seed=1), steps=3)
    alone.train(alone.create("b", rank=7, seed=2), steps=3, data=other)

    for model in (a, b):
        theirs = alone.engine._models[model].adapter.flat
        assert (weights[model] - theirs).norm() <= 1e-5 * theirs.norm()


def test_a_saved_training_state_resumes_bit_for_bit(bench, tmp_path):
    model = bench.create("m")
    bench.train(model, steps=2)
    path = "tinker://m/weights/two"
    saved = bench.run(SaveWeights(model_id=model, path=path), tmp_path / "two")
    assert isinstance(saved, Saved)
    assert saved.size_bytes == sum(f.stat().st_size for f in (tmp_path / "two").iterdir())
    bench.train(model, steps=2)

    again = ModelId("again")
    bench.run(CreateModelFrom(model_id=again, path=path, with_optimizer=True), tmp_path / "two")
    bench.train(again, steps=2)
    bench.run(LoadWeights(model_id=model, path=path, with_optimizer=True), tmp_path / "two")
    bench.train(model, steps=2)

    models = bench.engine._models
    assert (models[again].adapter.flat == models[model].adapter.flat).all()
    assert models[again].optimizer.steps == 4


def test_without_its_optimizer_a_checkpoint_starts_adam_afresh(bench, tmp_path):
    model = bench.create("m")
    bench.train(model, steps=2)
    path = "tinker://m/weights/two"
    bench.run(SaveWeights(model_id=model, path=path), tmp_path / "two")

    again = ModelId("again")
    bench.run(CreateModelFrom(model_id=again, path=path, with_optimizer=False), tmp_path / "two")

    fresh = bench.engine._models[again]
    assert fresh.optimizer.steps == 0
    assert (fresh.adapter.flat == bench.engine._models[model].adapter.flat).all()


def test_a_saved_sampler_samples_as_the_live_weights_do(bench, tmp_path):
    model = bench.create("m")
    bench.train(model, steps=3)
    path = "tinker://m/sampler_weights/three"
    bench.run(SaveWeights(model_id=model, path=path), tmp_path / "three")
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))

    saved = bench.sample(path, tmp_path / "three", num_samples=3)

    assert tokens_of(saved) == tokens_of(bench.sample("s", num_samples=3))
    assert saved.weights_version == 3
    refused = bench.run(
        CreateModelFrom(model_id=ModelId("n"), path=path, with_optimizer=True), tmp_path / "three"
    )
    assert isinstance(refused, Failure)
    assert "no optimizer state" in refused.message


def test_a_failed_pass_spoils_the_next_step_and_only_that(bench):
    model = bench.create("m")
    before = bench.engine._models[model].adapter.flat.clone()
    bad = Datum(ModelInput.from_ints([1, 2]), {"target_tokens": np.array([3, 9999])})
    ids = [bench.start(op) for op in (
        passes(model), passes(model, (datum(), bad)), step(model), passes(model), step(model),
    )]  # fmt: skip

    results = bench.finish()

    good, failed, refused, again, stepped = (results[i] for i in ids)
    assert isinstance(good, PassResult)
    assert isinstance(failed, Failure)
    assert "data[1].loss_fn_inputs['target_tokens'][1]" in failed.message
    assert isinstance(refused, Failure)
    assert refused.fault is Fault.USER
    assert f"forward_backward {ids[1]} failed" in refused.message
    assert isinstance(again, PassResult)
    assert isinstance(stepped, StepResult)
    assert stepped.weights_version == 1
    assert (bench.engine._models[model].adapter.flat != before).any()


def test_a_step_without_gradients_is_refused(bench):
    model = bench.create("m")
    bench.run(passes(model, forward_only=True))
    refused = bench.run(step(model))
    assert isinstance(refused, Failure)
    assert "no forward_backward since the last step" in refused.message


def test_discarded_gradients_do_not_reach_the_weights(bench):
    model = bench.create("m")
    bench.run(passes(model))
    refused = bench.run(DiscardGradients(model_id=model, reason="a part of the batch failed"))
    assert refused == Failure("a part of the batch failed", Fault.USER)
    assert "no forward_backward" in bench.run(step(model)).message


def test_an_overflowing_gradient_leaves_the_weights_alone(bench):
    model = bench.create("m")
    inputs = {
        "target_tokens": np.array([5, 6]),
        "logprobs": np.full(2, -500, np.float32),  # exp(p - q) overflows
        "advantages": np.ones(2, np.float32),
    }
    data = (Datum(ModelInput.from_ints([1, 2]), inputs),)
    bench.run(ForwardBackward(model_id=model, data=data, loss_fn="importance_sampling"))
    before = bench.engine._models[model].adapter.flat.clone()

    refused = bench.run(step(model))

    assert isinstance(refused, Failure)
    assert "not finite" in refused.message
    assert (bench.engine._models[model].adapter.flat == before).all()
    assert bench.train(model)[0] > 0  # and training goes on


def test_a_long_pass_lets_samples_through(bench):
    model = bench.create("m")
    long_pass = bench.start(passes(model, data=(datum(),) * 1 + tuple(
        datum(bytes([65 + n]) * 30) for n in range(40)
    )))  # fmt: skip
    drawn = bench.start(sample())

    ended = []
    while bench.engine.busy:
        ended += [outcome.operation_id for outcome in bench.engine.step()]

    assert ended == [drawn, long_pass]


def test_a_cancelled_sample_ends_as_cancelled(bench):
    kept, withdrawn = (
        bench.start(sample(params={"max_tokens": 30})),
        bench.start(sample(params={"max_tokens": 400})),
    )
    bench.engine.step()
    bench.engine.cancel(withdrawn)
    results = bench.finish()
    assert results[withdrawn].fault is Fault.CANCELLED
    assert len(results[kept].sequences[0].tokens) == 30


def test_an_unloaded_model_is_gone_and_says_so(bench):
    model = bench.create("m")
    bench.run(UnloadModel(model_id=model))
    refused = bench.run(passes(model))
    assert isinstance(refused, Failure)
    assert "model m is not loaded" in refused.message
    bench.create("m")


def test_a_released_sampler_is_gone_and_says_so(bench):
    model = bench.create("m")
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    bench.run(ReleaseSampler(sampler_id=SamplerId("s")))
    refused = bench.run(sample("s"))
    assert isinstance(refused, Failure)
    assert "the weights of sampler s are gone" in refused.message


def test_pinned_weights_leave_memory_and_come_back(bench, tmp_path, monkeypatch):
    model = bench.create("m")
    monkeypatch.setattr(bench.engine._shelf, "_limit", 1)
    drawn = {}
    for n in range(3):
        bench.train(model)
        name = f"s{n}"
        bench.run(PinSampler(model_id=model, sampler_id=SamplerId(name)))
        drawn[name] = tokens_of(bench.sample(name, num_samples=3))
    spilled = tmp_path / "scratch" / "samplers"
    assert len(list(spilled.iterdir())) == 2

    for name, tokens in drawn.items():
        result = bench.sample(name, num_samples=3)
        assert tokens_of(result) == tokens
    bench.run(ReleaseSampler(sampler_id=SamplerId("s0")))
    bench.run(ReleaseSampler(sampler_id=SamplerId("s1")))
    assert len(list(spilled.iterdir())) == 0


def test_a_full_scratch_disk_loses_no_pinned_weights(bench, monkeypatch):
    model = bench.create("m")
    bench.train(model)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("a")))
    drawn = tokens_of(bench.sample("a", num_samples=3))
    monkeypatch.setattr(bench.engine._shelf, "_limit", 1)

    def full(*_: object) -> None:
        raise SafetensorError("no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(samplers, "save_file", full)
        refused = bench.run(PinSampler(model_id=model, sampler_id=SamplerId("b")))
        assert isinstance(refused, Failure)
        assert "no space left" in refused.message

    assert tokens_of(bench.sample("a", num_samples=3)) == drawn


def test_an_unknown_base_model_fails_its_operation_by_name(bench):
    spec = LoraSpec(rank=4)
    made = bench.run(CreateModel(model_id=ModelId("m"), base_model="no/such", lora=spec))
    assert isinstance(made, Failure)
    assert made.fault is Fault.USER
    assert "no/such" in made.message
    assert "tiny" in made.message


def test_an_unknown_base_model_is_refused_at_start(tmp_path):
    with pytest.raises(UnknownModelError, match="no/such"):
        TorchEngine(EngineSettings(models=("no/such",), scratch=tmp_path))


def test_a_load_is_told_while_it_lasts(tiny_folder, tmp_path):
    told: list[Doing | None] = []
    settings = EngineSettings(models=(f"tiny={tiny_folder}",), scratch=tmp_path / "scratch")
    bench = Bench(TorchEngine(settings, told.append))
    told.clear()
    for name in ("one", "two"):
        bench.run(CreateModel(model_id=ModelId(name), base_model="tiny", lora=LoraSpec(rank=4)))

    assert told == [Doing("loading base model tiny"), None]


def test_a_base_model_that_does_not_fit_is_refused_with_numbers(tiny_folder, tmp_path):
    bench = Bench(make_engine(tiny_folder, tmp_path / "scratch", memory_limit_bytes=1000))
    made = bench.run(CreateModel(model_id=ModelId("m"), base_model="tiny", lora=LoraSpec(rank=4)))
    assert isinstance(made, Failure)
    assert made.fault is Fault.USER
    assert "tiny needs" in made.message
    assert "GiB" in made.message


def test_adapters_are_refused_with_numbers_before_they_exceed_the_memory_limit(
    tiny_folder, tmp_path
):
    limit = 8 << 20
    bench = Bench(make_engine(tiny_folder, tmp_path / "scratch", memory_limit_bytes=limit))
    spec = LoraSpec(rank=64)
    path = "tinker://m0/weights/c"

    ids = [ModelId(f"m{n}") for n in range(20)]
    made = [bench.run(CreateModel(model_id=i, base_model="tiny", lora=spec)) for i in ids]
    kept = [m for m in made if isinstance(m, ModelReady)]
    assert 0 < len(kept) < len(made)
    assert bench.engine.capacity().memory_bytes <= limit
    refused = made[-1]
    assert isinstance(refused, Failure)
    assert "a model of rank 64 on tiny needs" in refused.message
    assert "of 0.01 GiB are taken" in refused.message

    bench.run(SaveWeights(model_id=ids[0], path=path), tmp_path / "c")
    again = CreateModelFrom(model_id=ModelId("again"), path=path, with_optimizer=True)
    assert isinstance(bench.run(again, tmp_path / "c"), Failure)
    bench.run(UnloadModel(model_id=ids[0]))
    assert isinstance(bench.run(again, tmp_path / "c"), ModelReady)


def test_a_sum_of_checkpoints_is_refused_with_numbers_while_memory_is_taken(bench, tmp_path):
    model, path = bench.create("m", rank=16), "tinker://m/weights/c"
    bench.run(SaveWeights(model_id=model, path=path), tmp_path / "c")
    bench.engine._bases.limit_bytes = bench.engine.capacity().memory_bytes
    asked = InterpolateCheckpoints(
        model_id=ModelId("sum"), base_model="tiny", path="tinker://sum/sampler_weights/s",
        source_paths=(path,), coefficients=(0.5,),
    )  # fmt: skip

    def run():
        work = Work(next(bench._ids), asked, tmp_path / "sum", terms=(tmp_path / "c",))
        bench.engine.start(work)
        return bench.finish()[work.operation_id]

    refused = run()
    assert isinstance(refused, Failure)
    assert refused.fault is Fault.USER
    assert "a sum of 1 checkpoints, of a rank of up to 16, needs" in refused.message
    bench.run(UnloadModel(model_id=model))
    assert isinstance(run(), Interpolated)


def test_an_idle_base_model_makes_room_for_another(tmp_path):
    names = ("one", "two")
    folders = [build_tiny(tmp_path / name, seed=n) for n, name in enumerate(names)]
    weights = (folders[0] / "model.safetensors").stat().st_size
    engine = TorchEngine(
        EngineSettings(
            models=tuple(f"{n}={f}" for n, f in zip(names, folders, strict=True)),
            scratch=tmp_path / "scratch",
            memory_limit_bytes=int(1.5 * weights),
            kv_tokens=64,
        )
    )
    bench = Bench(engine)
    for name in (*names, "one"):
        drawn = Sample(
            sampler_id=SamplerId("b"), base_model=name, weights=None,
            prompt=ModelInput.from_ints([1, 2, 3]), params=SamplingParams(max_tokens=2),
        )  # fmt: skip
        assert isinstance(bench.run(drawn), SampleResult)
        assert engine.capacity().loaded_models == (name,)


def test_a_base_model_stays_while_a_pass_compares_with_it(tmp_path):
    names = ("student", "teacher", "other")
    folders = [build_tiny(tmp_path / name, seed=n) for n, name in enumerate(names)]
    weights = (folders[0] / "model.safetensors").stat().st_size
    engine = TorchEngine(
        EngineSettings(
            models=tuple(f"{n}={f}" for n, f in zip(names, folders, strict=True)),
            scratch=tmp_path / "scratch",
            kv_tokens=64,
            preload=False,
        )
    )
    bench = Bench(engine)
    model_id, lora = ModelId("m"), LoraSpec(rank=4)
    bench.run(CreateModel(model_id=model_id, base_model="student", lora=lora))
    bench.train(model_id)  # from here on the adapter takes no more memory
    engine._bases.limit_bytes = engine.capacity().memory_bytes + int(1.5 * weights)
    long = ModelInput.from_ints(np.arange(200))
    datum = ReverseKLDatum(long, long, np.arange(1, 201), np.ones(200, np.float32))
    passing = bench.start(
        ReverseKL(
            model_id=model_id, data=(datum,) * 8, reference_base="teacher", reference_weights=None,
            temperature=1.0,
        )
    )  # fmt: skip
    assert engine.step() == []  # it has begun
    drawn = Sample(
        sampler_id=SamplerId("b"), base_model="other", weights=None,
        prompt=ModelInput.from_ints([1, 2, 3]), params=SamplingParams(max_tokens=2),
    )  # fmt: skip

    refused = bench.start(drawn)
    found = bench.finish()

    failure = found[refused]
    assert isinstance(failure, Failure)
    assert "(loaded: student, teacher)" in failure.message
    assert isinstance(found[passing], ReverseKLResult)
    assert isinstance(bench.run(drawn), SampleResult)  # and no longer than that
    assert engine.capacity().loaded_models == ("student", "other")


def test_the_shelf_is_emptied_when_an_engine_starts(tmp_path):
    (tmp_path / "left.safetensors").write_bytes(b"x")
    samplers.SamplerShelf(1, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_names_of_one_model_share_its_weights(tiny_folder, tmp_path):
    models = (f"tiny={tiny_folder}", f"alias={tiny_folder}")
    engine = TorchEngine(EngineSettings(models=models, scratch=tmp_path))
    bench = Bench(engine)
    bench.create("m")
    spec = LoraSpec(rank=4)
    bench.run(CreateModel(model_id=ModelId("n"), base_model="alias", lora=spec))
    assert engine.capacity().loaded_models == ("tiny",)


def turns_of(bench, monkeypatch):
    """Names of the turns that the engine takes from now on: sampling, training."""
    names = []
    decoding, trainer = (
        getattr(bench.engine._bases.get("tiny", 0), name) for name in ("decoding", "trainer")
    )

    def noted(owner, method, name):
        real = getattr(owner, method)

        def call(*args):
            names.append(name)
            return real(*args)

        monkeypatch.setattr(owner, method, call)

    noted(decoding, "round", "sampling")
    noted(trainer, "advance", "training")
    return names


def longest_run(names, of):
    return max(len(list(group)) for name, group in itertools.groupby(names) if name == of)


@pytest.mark.parametrize("rows", [1, 24])
def test_at_most_two_turns_of_training_lie_between_two_tokens_while_a_long_pass_runs(
    tiny_folder, tmp_path, monkeypatch, rows
):
    """With micro-batches of which a layer costs less than a decode round, as the budget makes them
    for models of more than two layers."""
    bench = Bench(make_engine(tiny_folder, tmp_path / "scratch", batch_tokens=20))
    model = bench.create("m")
    names = turns_of(bench, monkeypatch)
    data = tuple(datum(bytes([65 + n]) * 20) for n in range(60))
    bench.start(passes(model, data=data))
    bench.start(sample(num_samples=rows, params={"max_tokens": 100}))

    assert not [r for r in bench.finish().values() if isinstance(r, Failure)]

    last = {name: len(names) - names[::-1].index(name) for name in ("sampling", "training")}
    both = names[names.index("sampling") : min(last.values())]  # while both had something to do
    assert both.count("training") > 20
    assert longest_run(both, "training") <= 2
    assert longest_run(both, "sampling") <= 2


def test_a_pass_that_pauses_gives_what_it_gives_alone(bench, tiny_folder, tmp_path):
    model = bench.create("m")
    data = tuple(datum(bytes([65 + n]) * 60) for n in range(6))
    learnt = bench.start(passes(model, data=data))
    drawn = bench.start(sample(num_samples=3, params={"max_tokens": 60}))
    together = bench.finish()

    alone = Bench(make_engine(tiny_folder, tmp_path / "alone"))
    alone.create("m")
    result = alone.run(passes(model, data=data))
    paused = together[learnt]

    assert isinstance(result, PassResult)
    assert isinstance(paused, PassResult)
    for ours, theirs in zip(paused.logprobs, result.logprobs, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    one, other = (b.engine._models[model].adapter.flat_grad for b in (bench, alone))
    assert (one - other).norm() <= 5e-6 * other.norm()
    assert tokens_of(together[drawn]) == tokens_of(
        alone.sample(num_samples=3, params={"max_tokens": 60})
    )


def test_of_two_base_models_one_has_a_micro_batch_under_way(tmp_path):
    names = ("one", "other")
    specs = [f"{name}={build_tiny(tmp_path / name, seed=n)}" for n, name in enumerate(names)]
    engine = TorchEngine(EngineSettings(models=tuple(specs), scratch=tmp_path / "scratch"))
    bench = Bench(engine)
    for name in names:
        made = CreateModel(model_id=ModelId(name), base_model=name, lora=LoraSpec(rank=4))
        assert isinstance(bench.run(made), ModelReady)
    data = tuple(datum(bytes([65 + n]) * 150) for n in range(12))
    both = {bench.start(passes(ModelId(name), data=data)) for name in names}
    trainers = [base.trainer for base in engine._bases.loaded()]

    halfway, found = [], {}
    while engine.busy:
        found |= {outcome.operation_id: outcome.result for outcome in engine.step()}
        halfway.append(tuple(trainer.is_halfway for trainer in trainers))

    assert set(found) == both
    assert all(isinstance(result, PassResult) for result in found.values())
    assert set(halfway) == {(False, False), (True, False), (False, True)}
    first_done = min(halfway[::-1].index(one) for one in ((True, False), (False, True)))
    assert first_done < len(halfway) / 3  # they go on side by side, batch by batch


def test_an_engine_that_closes_in_the_middle_of_a_pass_leaves_no_thread(bench):
    before = threading.active_count()
    model = bench.create("m")
    bench.start(sample(params={"max_tokens": 100}))
    bench.start(passes(model, data=(datum(b"x" * 200),)))
    while threading.active_count() == before:
        bench.engine.step()
    bench.engine.close()
    for thread in threading.enumerate():
        if thread.name == "training":
            thread.join(5)
    assert threading.active_count() == before


def policy_datum(sequence, gap=0.0) -> Datum:
    """What a client makes of a sampled sequence."""
    ids = np.concatenate([PROMPT, sequence.tokens])
    before = np.zeros(len(PROMPT) - 1, np.float32)
    inputs = {
        "target_tokens": ids[1:].astype(np.int64),
        "logprobs": np.concatenate([before, sequence.logprobs + np.float32(gap)]),
        "advantages": np.concatenate([before, np.ones(len(sequence.tokens), np.float32)]),
    }
    return Datum(ModelInput.from_ints(ids[:-1]), inputs)


def learn(bench, model, sequences, temperature=1.0, **change):
    operation = ForwardBackward(
        model_id=model, data=tuple(policy_datum(s, **change) for s in sequences),
        loss_fn="importance_sampling", loss_fn_config={"temperature": temperature},
    )  # fmt: skip
    result = bench.run(operation)
    assert isinstance(result, PassResult), result
    return {name: value for name, value in result.metrics.items() if name.startswith("parity/")}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_pass_over_data_sampled_from_its_very_weights_reports_the_gap(bench, temperature):
    model = bench.create("m")
    bench.train(model, steps=2)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    drawn = bench.sample("s", num_samples=4, params={"temperature": temperature})

    parity = learn(bench, model, drawn.sequences, temperature)

    assert parity["parity/tokens:sum"] == 4 * 8
    assert 0 <= parity["parity/logprob_gap:mean"] <= parity["parity/logprob_gap:max"] <= 1e-4
    assert not learn(bench, model, drawn.sequences, temperature + 0.1)
    assert not learn(bench, model, drawn.sequences, temperature, gap=0.5)


def test_data_of_an_earlier_version_or_another_model_is_compared_with_nothing(bench):
    model, other = bench.create("m"), bench.create("n")
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    drawn = bench.sample("s")
    assert not learn(bench, other, drawn.sequences)
    assert learn(bench, model, drawn.sequences)
    bench.run(step(model))
    assert not learn(bench, model, drawn.sequences)
    assert not learn(bench, model, bench.sample().sequences)  # of the base model


def test_saved_sampler_weights_are_known_as_their_model_s(bench, tmp_path):
    model = bench.create("m")
    bench.train(model)
    path = "tinker://m/sampler_weights/one"
    bench.run(SaveWeights(model_id=model, path=path), tmp_path / "one")
    drawn = bench.sample(path, tmp_path / "one")
    assert learn(bench, model, drawn.sequences)["parity/tokens:sum"] == 8


def test_weights_that_are_not_those_of_the_version_are_noticed(bench, caplog):
    model = bench.create("m")
    bench.train(model, steps=3)
    bench.run(PinSampler(model_id=model, sampler_id=SamplerId("s")))
    drawn = bench.sample("s")
    bench.engine._models[model].adapter.flat.data.mul_(2)  # as a bug in the engine would

    parity = learn(bench, model, drawn.sequences)

    assert parity["parity/logprob_gap:max"] > 1e-3
    assert "model m, version 3: trainer and sampler differ by up to" in caplog.text


@pytest.mark.parametrize("change", [{"training_share": 1.0}, {"batch_tokens": 0}])
def test_settings_that_cannot_be_are_refused(tmp_path, change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        EngineSettings(models=(), scratch=tmp_path, **change)
