"""A service without a server: clients of the SDK's shape over a policy written in the test.

Nothing here learns; what is real are the shapes and the order. Answers come from another thread, as
the SDK's do, so code that blocks a loop on `.result()` is served here exactly as it is there. Every
call is recorded when it is made, and training calls take effect in that order.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import numpy as np
from tinker import types
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture

T = TypeVar("T")
Answer = tuple[Sequence[int], Sequence[float], Literal["stop", "length"]]
Shape = Literal["0.22", "0.38"]


@dataclass(frozen=True)
class Call:
    """One call of a client, in the order in which they were made."""

    name: str
    """The method's plain name: an async twin is recorded under it too."""
    client: Any
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Weights:
    """What a checkpoint holds: of which model, how many optimizer steps old."""

    base_model: str
    rank: int
    steps: int
    optimizer_steps: int
    """Since the optimizer was new."""
    user_metadata: dict[str, str] = field(default_factory=dict)
    ttl_seconds: int | None = None


def four(prompt: list[int], params: types.SamplingParams) -> Answer:
    """Always answers "4" and ends."""
    return [52], [-0.5], "stop"


def all_minus_one(tokens: list[int], temperature: float) -> list[float]:
    """A score that gives every token of a text logprob -1."""
    return [-1.0] * len(tokens)


class FakeService:
    """A stand-in for ServiceClient.

    Args:
        respond: the policy: tokens of the prompt and parameters -> tokens, logprobs, stop reason.
        score: logprobs of a text's tokens at a temperature; that of the first is not shown.
        sdk: whose shapes calls have: 0.22 blocks for clients and gives concurrent futures for
            samples; 0.38 gives futures that can be awaited.
        latency_s: until any promise is kept.
        drift: what training logprobs are above those that a datum says were sampled.
        fail: looks at each call; the error it returns is what the call's promise comes to.
    """

    def __init__(
        self,
        respond: Callable[[list[int], types.SamplingParams], Answer] = four,
        *,
        score: Callable[[list[int], float], Sequence[float]] = all_minus_one,
        sdk: Shape = "0.38",
        latency_s: float = 0.0,
        drift: float = 0.0,
        fail: Callable[[Call], Exception | None] = lambda call: None,
        scales_loss_by_temperature: bool = True,
        tokenizer: Any = None,
        base_model: str = "test/tiny",
    ) -> None:
        self.respond = respond
        self.score = score
        self.sdk: Shape = sdk
        self.latency_s = latency_s
        self.drift = drift
        self.fail = fail
        self.scales_loss_by_temperature = scales_loss_by_temperature
        self.tokenizer = tokenizer
        self.base_model = base_model
        self.calls: list[Call] = []
        self.checkpoints: dict[str, Weights] = {}
        self.deleted: list[str] = []
        self.training_clients: list[FakeTrainingClient] = []
        self.sampled_sequences = 0
        self.samples_in_flight = 0
        self.most_samples_in_flight = 0
        self._lock = threading.Lock()
        self._thread = _LoopThread()

    # --------------------------------------------------- what tests look at

    def names(self) -> list[str]:
        """The names of all calls, in order."""
        return [call.name for call in self.calls]

    def called(self, name: str) -> list[Call]:
        """The calls of one name, in order."""
        return [call for call in self.calls if call.name == name]

    # ---------------------------------------------------- the client's face

    def create_lora_training_client(
        self, base_model: str, rank: int = 32, seed: int | None = None, train_mlp: bool = True,
        train_attn: bool = True, train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> Any:  # fmt: skip
        call = self.record(
            "create_lora_training_client", self, base_model=base_model, rank=rank,
            user_metadata=user_metadata,
        )  # fmt: skip
        weights = Weights(base_model, rank, 0, 0, user_metadata or {})
        return self.client(self.promise(call, lambda: FakeTrainingClient(self, weights)))

    def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> Any:
        return self._restored("create_training_client_from_state", path, user_metadata)

    def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> Any:
        name = "create_training_client_from_state_with_optimizer"
        return self._restored(name, path, user_metadata)

    def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None
    ) -> Any:
        call = self.record(
            "create_sampling_client", self, model_path=model_path, base_model=base_model
        )
        weights = Weights(base_model or self.base_model, 0, 0, 0)
        if model_path is not None:
            weights = self.checkpoints[model_path]
        return self.client(self.promise(call, lambda: FakeSamplingClient(self, weights)))

    def create_rest_client(self) -> "FakeRestClient":
        return FakeRestClient(self)

    def get_server_capabilities(self) -> Any:
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=self.base_model)])

    def server_extensions(self) -> frozenset[str]:
        known = {"loss_temperature", "prompt_temperature"}
        return frozenset(known if self.scales_loss_by_temperature else ())

    def _restored(self, name: str, path: str, user_metadata: dict[str, str] | None) -> Any:
        call = self.record(name, self, path=path, user_metadata=user_metadata)
        saved = self.checkpoints[path]
        optimizer_steps = saved.optimizer_steps if name.endswith("with_optimizer") else 0
        weights = Weights(
            saved.base_model, saved.rank, saved.steps, optimizer_steps, user_metadata or {}
        )
        return self.client(self.promise(call, lambda: FakeTrainingClient(self, weights)))

    # ------------------------------------------------------------- promises

    def record(self, name: str, client: Any, /, **arguments: Any) -> Call:
        call = Call(name, client, arguments)
        with self._lock:
            self.calls.append(call)
        return call

    def promise(
        self, call: Call, make: Callable[[], T], left: Callable[[], None] = lambda: None
    ) -> Future[T]:
        """A future of `make()`, which is called now, that comes true after the latency."""
        error = self.fail(call)
        value = None if error else make()

        async def later() -> Any:
            try:
                if self.latency_s:
                    await asyncio.sleep(self.latency_s)
                if error:
                    raise error
                return value
            finally:
                left()

        return self._thread.run(later())

    def client(self, promised: Future[Any]) -> Any:
        """A client as the SDK of this shape gives it."""
        return promised.result() if self.sdk == "0.22" else AwaitableConcurrentFuture(promised)

    def sampled(self, promised: Future[Any]) -> Any:
        """An answer of a sampling client as the SDK of this shape gives it."""
        return promised if self.sdk == "0.22" else AwaitableConcurrentFuture(promised)


class FakeTrainingClient:
    """A stand-in for TrainingClient, that counts its optimizer steps."""

    def __init__(self, service: FakeService, weights: Weights) -> None:
        self.service = service
        self.weights = weights
        service.training_clients.append(self)
        self.model_id = f"fake-{len(service.training_clients)}:train:0"
        if service.sdk == "0.22":
            # an instance's own attribute: in newer SDKs the twin is deprecated, and not needed
            self.save_weights_and_get_sampling_client_async = self._ephemeral_async

    @property
    def steps(self) -> int:
        """How many optimizer steps these weights have seen."""
        return self.weights.steps

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: dict[str, Any] | None = None
    ) -> AwaitableConcurrentFuture[types.ForwardBackwardOutput]:
        call = self._record(
            "forward_backward", data=data, loss_fn=loss_fn, loss_fn_config=loss_fn_config
        )
        return self._future(call, lambda: self._pass(data))

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: dict[str, Any] | None = None
    ) -> AwaitableConcurrentFuture[types.ForwardBackwardOutput]:
        call = self._record("forward", data=data, loss_fn=loss_fn, loss_fn_config=loss_fn_config)
        return self._future(call, lambda: self._pass(data))

    def optim_step(
        self, adam_params: types.AdamParams
    ) -> AwaitableConcurrentFuture[types.OptimStepResponse]:
        call = self._record("optim_step", adam_params=adam_params)

        def step() -> types.OptimStepResponse:
            was = self.weights
            self.weights = Weights(
                was.base_model, was.rank, was.steps + 1, was.optimizer_steps + 1, was.user_metadata
            )
            return types.OptimStepResponse(metrics={"optimizer_steps": self.weights.steps})

        return self._future(call, step)

    def save_state(
        self, name: str, ttl_seconds: int | None = None
    ) -> AwaitableConcurrentFuture[types.SaveWeightsResponse]:
        call = self._record("save_state", name=name, ttl_seconds=ttl_seconds)
        path = f"tinker://{self.model_id}/weights/{name}"
        return self._future(
            call, lambda: types.SaveWeightsResponse(path=self._keep(path, ttl_seconds))
        )

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> AwaitableConcurrentFuture[types.SaveWeightsForSamplerResponse]:
        call = self._record("save_weights_for_sampler", name=name, ttl_seconds=ttl_seconds)
        path = f"tinker://{self.model_id}/sampler_weights/{name}"
        return self._future(
            call, lambda: types.SaveWeightsForSamplerResponse(path=self._keep(path, ttl_seconds))
        )

    def save_weights_and_get_sampling_client(self) -> Any:
        return self.service.client(self._ephemeral())

    def create_sampling_client(self, model_path: str) -> Any:
        return self.service.create_sampling_client(model_path=model_path)

    def get_info(self) -> Any:
        return SimpleNamespace(
            model_id=self.model_id,
            model_data=SimpleNamespace(model_name=self.weights.base_model),
        )

    def get_tokenizer(self) -> Any:
        return self.service.tokenizer

    async def _ephemeral_async(self) -> "FakeSamplingClient":
        return await asyncio.wrap_future(self._ephemeral())

    def _ephemeral(self) -> "Future[FakeSamplingClient]":
        call = self._record("save_weights_and_get_sampling_client")
        return self.service.promise(call, lambda: FakeSamplingClient(self.service, self.weights))

    def _pass(self, data: list[types.Datum]) -> types.ForwardBackwardOutput:
        outputs = [{"logprobs": _tensor(self._logprobs(datum))} for datum in data]
        loss = -sum(float(output["logprobs"].to_numpy().sum()) for output in outputs)
        return types.ForwardBackwardOutput(
            loss_fn_output_type="ArrayRecord",
            loss_fn_outputs=outputs,
            metrics={"loss:sum": loss},
        )

    def _logprobs(self, datum: types.Datum) -> np.ndarray:
        """Those that were sampled, moved by the drift; -1 where nothing was sampled."""
        targets = datum.loss_fn_inputs["target_tokens"].to_numpy()
        if "logprobs" not in datum.loss_fn_inputs:
            return np.full(targets.shape, -1.0, np.float32)
        sampled = datum.loss_fn_inputs["logprobs"].to_numpy()
        return np.where(sampled != 0, sampled + self.service.drift, -1.0).astype(np.float32)

    def _keep(self, path: str, ttl_seconds: int | None) -> str:
        now = self.weights
        self.service.checkpoints[path] = Weights(
            now.base_model, now.rank, now.steps, now.optimizer_steps, now.user_metadata, ttl_seconds
        )
        return path

    def _record(self, name: str, /, **arguments: Any) -> Call:
        return self.service.record(name, self, **arguments)

    def _future(self, call: Call, make: Callable[[], T]) -> AwaitableConcurrentFuture[T]:
        return AwaitableConcurrentFuture(self.service.promise(call, make))


class FakeSamplingClient:
    """A stand-in for SamplingClient, of weights that have seen `steps` optimizer steps."""

    def __init__(self, service: FakeService, weights: Weights) -> None:
        self.service = service
        self.weights = weights

    @property
    def steps(self) -> int:
        return self.weights.steps

    def sample(
        self, prompt: types.ModelInput, num_samples: int, sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
    ) -> Any:  # fmt: skip
        service = self.service
        call = service.record(
            "sample", self, prompt=prompt, num_samples=num_samples, sampling_params=sampling_params,
            include_prompt_logprobs=include_prompt_logprobs,
        )  # fmt: skip

        def answer() -> types.SampleResponse:
            tokens = prompt.to_ints()
            temperature = sampling_params.temperature
            return types.SampleResponse(
                sequences=[
                    service_sequence(service, service.respond(tokens, sampling_params))
                    for _ in range(num_samples)
                ],
                prompt_logprobs_np=self._scored(tokens, temperature)
                if include_prompt_logprobs
                else None,
            )

        self._enter()
        return service.sampled(service.promise(call, answer, self._leave))

    def compute_logprobs(self, prompt: types.ModelInput) -> Any:
        call = self.service.record("compute_logprobs", self, prompt=prompt)

        def answer() -> list[float | None]:
            scored = self._scored(prompt.to_ints(), 1.0)
            return [None, *scored[1:].tolist()]

        return self.service.sampled(self.service.promise(call, answer))

    def get_tokenizer(self) -> Any:
        return self.service.tokenizer

    def get_base_model(self) -> str:
        return self.weights.base_model

    def _scored(self, tokens: list[int], temperature: float) -> np.ndarray:
        scored = np.asarray(self.service.score(tokens, temperature), np.float32)
        scored[:1] = np.nan
        return scored

    def _enter(self) -> None:
        service = self.service
        with service._lock:
            service.samples_in_flight += 1
            service.most_samples_in_flight = max(
                service.most_samples_in_flight, service.samples_in_flight
            )

    def _leave(self) -> None:
        with self.service._lock:
            self.service.samples_in_flight -= 1


class FakeRestClient:
    """A stand-in for RestClient."""

    def __init__(self, service: FakeService) -> None:
        self.service = service

    def delete_checkpoint_from_tinker_path(
        self, tinker_path: str
    ) -> AwaitableConcurrentFuture[None]:
        call = self.service.record("delete_checkpoint_from_tinker_path", self, path=tinker_path)

        def delete() -> None:
            del self.service.checkpoints[tinker_path]
            self.service.deleted.append(tinker_path)

        return AwaitableConcurrentFuture(self.service.promise(call, delete))

    def get_training_run_by_tinker_path(self, tinker_path: str) -> AwaitableConcurrentFuture[Any]:
        call = self.service.record("get_training_run_by_tinker_path", self, path=tinker_path)
        saved = self.service.checkpoints[tinker_path]
        run = SimpleNamespace(base_model=saved.base_model, user_metadata=saved.user_metadata)
        return AwaitableConcurrentFuture(self.service.promise(call, lambda: run))


def service_sequence(service: FakeService, answer: Answer) -> types.SampledSequence:
    """A sampled sequence as the installed SDK has it."""
    tokens, logprobs, stop_reason = answer
    with service._lock:
        service.sampled_sequences += 1
        number = service.sampled_sequences
    named: dict[str, Any] = {}
    if "sequence_id" in types.SampledSequence.__dataclass_fields__:
        named["sequence_id"] = f"fake-{number}"
    return types.SampledSequence(
        stop_reason=stop_reason,
        tokens_np=np.asarray(tokens, np.int32),
        logprobs_np=np.asarray(logprobs, np.float32),
        **named,
    )


def _tensor(values: np.ndarray) -> types.TensorData:
    return types.TensorData.from_numpy(values)


class _LoopThread:
    """A loop in a thread of its own, started when first needed, as the SDK has one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, work: Any) -> Future[Any]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="fake-service", daemon=True
                ).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)
