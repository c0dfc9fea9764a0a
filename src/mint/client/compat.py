"""Our clients on upstream's. The only file that knows upstream's private names (tinker 0.38).

What they change:
- settings come from `mint.client.settings`, so that a base URL, a key and telemetry are never
  taken from upstream's own defaults (its production service, its stored credentials);
- whatever they create is one of ours too;
- `stop_token_ids` reaches the server, and `get_tokenizer()` asks the server first.

Upstream builds its clients inside closures, by name. Ours are therefore made by giving the
finished object our class (`_adopt`): the classes add methods and no state, so nothing has to be
rebuilt, and upstream's constructors may change as they like.
"""

import asyncio
import os
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import tinker
from pydantic import SerializeAsAny
from tinker import types as upstream_types
from tinker.lib.api_future_impl import _APIFuture, _CombinedAPIFuture
from tinker.lib.chunked_fwdbwd_helpers import combine_fwd_bwd_output_results
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType
from tinker.lib.internal_client_holder import InternalClientHolder
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture
from tinker.lib.public_interfaces.sampling_client import (
    _SamplingClientPickleState,
    _unpickle_sampling_client,
)
from tinker.lib.retry_handler import RetryConfig

from mint.client import settings, tokenizer
from mint.client.connect import Connection, extensions, opened, reach
from mint.client.sampling_params import SamplingParams
from mint.core.errors import UnsupportedError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Client = TypeVar("Client")


def _adopt(
    holder: InternalClientHolder, pending: tinker.APIFuture[Any], ours: type[Client]
) -> AwaitableConcurrentFuture[Client]:
    """A future of upstream's client, with our class."""

    async def adopted() -> Client:
        client = await pending
        client.__class__ = ours
        return client

    return holder.run_coroutine_threadsafe(adopted())


def _connection(holder: InternalClientHolder) -> Connection:
    return Connection(holder._base_url, holder._api_key or "")


# ------------------------------------------------------------ which server


_is_ours: "weakref.WeakKeyDictionary[InternalClientHolder, bool]" = weakref.WeakKeyDictionary()


async def _server_is_ours(holder: InternalClientHolder) -> bool:
    """Whether our routes exist there; asked once per session."""
    if holder not in _is_ours:
        _is_ours[holder] = await holder.execute_with_retries(_ask_for_our_route, holder)
    return _is_ours[holder]


async def _ask_for_our_route(holder: InternalClientHolder) -> bool:
    with holder.aclient(ClientConnectionPoolType.SESSION) as client:
        try:
            await client.get("/api/v1/mint/server", cast_to=object)
        except tinker.NotFoundError:
            return False
    return True


def _without_our_field(params: SamplingParams) -> upstream_types.SamplingParams:
    """The same request for a server that does not know `stop_token_ids`."""
    if params.stop is not None:
        raise UnsupportedError(
            "this server takes either stop or stop_token_ids, and both are set. Put everything "
            "into stop, as ids or as texts."
        )
    stop = list(params.stop_token_ids or ())
    return upstream_types.SamplingParams(
        **{**params.model_dump(exclude={"stop_token_ids"}), "stop": stop}
    )


class _SampleRequest(upstream_types.SampleRequest):
    """Upstream's request, which would drop the fields our SamplingParams adds."""

    sampling_params: SerializeAsAny[upstream_types.SamplingParams]


# ----------------------------------------------------------------- clients


class SamplingClient(tinker.SamplingClient):
    """Upstream's SamplingClient: `stop_token_ids` work, the tokenizer is the server's, and a sample is
    one unless more are asked for."""

    def get_tokenizer(self) -> "PreTrainedTokenizerBase":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The served model's tokenizer: from the server, else upstream's own way (a hub)."""
        connection = _connection(self.holder)
        folder = tokenizer.folder_for(connection, self._base_model, settings.default_home())
        return super().get_tokenizer() if folder is None else tokenizer.load(folder)

    def sample(
        self,
        prompt: upstream_types.ModelInput,
        num_samples: int = 1,
        sampling_params: upstream_types.SamplingParams | None = None,
        *rest: Any,
        **named: Any,
    ) -> "tinker.APIFuture[upstream_types.SampleResponse]":
        """Upstream's, of one sample where `num_samples` is left out: MinT's pages leave it out."""
        if sampling_params is None:
            raise TypeError(
                "sample() needs sampling_params, such as mint.SamplingParams(max_tokens=64)."
            )
        return super().sample(prompt, num_samples, sampling_params, *rest, **named)

    async def _sample_async_impl(
        self,
        prompt: upstream_types.ModelInput,
        num_samples: int,
        sampling_params: upstream_types.SamplingParams,
        *rest: Any,
        **named: Any,
    ) -> upstream_types.SampleResponse:
        if (
            isinstance(sampling_params, SamplingParams)
            and sampling_params.stop_token_ids
            and not await _server_is_ours(self.holder)
        ):
            sampling_params = _without_our_field(sampling_params)
        return await super()._sample_async_impl(
            prompt, num_samples, sampling_params, *rest, **named
        )

    async def _send_asample_request(
        self,
        request_id: int,
        num_samples: int,
        prompt: upstream_types.ModelInput,
        sampling_params: upstream_types.SamplingParams,
        include_prompt_logprobs: bool,
        topk_prompt_logprobs: int,
        topk_sample_logprobs: int,
        target_prompt_logprobs: Any,
        prompt_alt_tokens_k: int,
        prompt_logprobs_last_n: int | None,
    ):
        if not getattr(sampling_params, "stop_token_ids", None):
            return await super()._send_asample_request(
                request_id, num_samples, prompt, sampling_params, include_prompt_logprobs,
                topk_prompt_logprobs, topk_sample_logprobs, target_prompt_logprobs,
                prompt_alt_tokens_k, prompt_logprobs_last_n,
            )  # fmt: skip
        request = _SampleRequest(
            sampling_session_id=self._sampling_session_id,
            seq_id=request_id,
            num_samples=num_samples,
            prompt=prompt,
            sampling_params=sampling_params,
            prompt_logprobs=include_prompt_logprobs,
            topk_prompt_logprobs=topk_prompt_logprobs,
            topk_sample_logprobs=topk_sample_logprobs,
            target_prompt_logprobs=target_prompt_logprobs,
            prompt_alt_tokens_k=prompt_alt_tokens_k,
            prompt_logprobs_last_n=prompt_logprobs_last_n,
            record_stability_info=self._record_stability_info,
        )
        try:
            with self.holder.aclient(ClientConnectionPoolType.SAMPLE) as client:
                return await client.sampling.asample(
                    request=request,
                    max_retries=0,
                    extra_headers={"X-Tinker-Sampling-Backpressure": "1"},
                )
        except tinker.APIStatusError as error:
            if error.status_code == 429 or self.holder._should_pause_on_billing(
                error.status_code, error.message
            ):
                return None  # upstream's sign for "later"
            raise

    @staticmethod
    def create(
        holder: InternalClientHolder, **arguments: Any
    ) -> AwaitableConcurrentFuture[tinker.SamplingClient]:
        return _adopt(holder, tinker.SamplingClient.create(holder, **arguments), SamplingClient)

    def __reduce__(self) -> tuple[Any, tuple[_SamplingClientPickleState]]:
        return (_unpickle, (self._pickle_state(),))

    @staticmethod
    def from_sampler_handle(handle: str, *, api_key: str | None = None) -> "SamplingClient":
        """A client for the sampler behind `handle`, with this process's key.

        The handle says where the server is; only the key is looked up here.
        """
        key = api_key or os.environ.get("MINT_API_KEY") or os.environ.get("TINKER_API_KEY")
        client = tinker.SamplingClient.from_sampler_handle(
            handle, api_key=settings.wire_key(key) if key else None
        )
        client.__class__ = SamplingClient
        return cast(SamplingClient, client)


def _unpickle(state: _SamplingClientPickleState) -> SamplingClient:
    client = _unpickle_sampling_client(state)
    client.__class__ = SamplingClient
    return cast(SamplingClient, client)


class TrainingClient(tinker.TrainingClient):
    """Upstream's TrainingClient: its sampling clients are ours, its tokenizer is the server's."""

    def get_tokenizer(self) -> "PreTrainedTokenizerBase":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The base model's tokenizer: from the server, else upstream's own way (a hub)."""
        model = self._info.model_data.model_name
        folder = model and tokenizer.folder_for(
            _connection(self.holder), model, settings.default_home()
        )
        return tokenizer.load(folder) if folder else super().get_tokenizer()

    def create_sampling_client(
        self,
        model_path: str,
        retry_config: RetryConfig | None = None,
        record_stability_info: bool = False,
    ) -> "SamplingClientFuture":
        pending = super().create_sampling_client(model_path, retry_config, record_stability_info)
        return _sampling_future(self.holder, pending)

    def save_weights_and_get_sampling_client(
        self,
        name: str | None = None,
        retry_config: RetryConfig | None = None,
        record_stability_info: bool = False,
        kind: upstream_types.SamplingClientKind = "snapshot",
    ) -> "SamplingClientFuture":
        pending = super().save_weights_and_get_sampling_client(
            name, retry_config, record_stability_info, kind
        )
        return _sampling_future(self.holder, pending)

    if TYPE_CHECKING:  # upstream's methods end in those above; only what they return is ours

        async def create_sampling_client_async(
            self,
            model_path: str,
            retry_config: RetryConfig | None = None,
            record_stability_info: bool = False,
        ) -> SamplingClient: ...

        async def save_weights_and_get_sampling_client_async(
            self,
            name: str | None = None,
            retry_config: RetryConfig | None = None,
            record_stability_info: bool = False,
            kind: upstream_types.SamplingClientKind = "snapshot",
        ) -> SamplingClient: ...


if TYPE_CHECKING:

    class SamplingClientFuture(tinker.BackcompatSamplingClientFuture):
        """Upstream's future, of a SamplingClient of ours. Upstream's class names its own client as
        the result; at run time it is the one that is used."""

        def result(self, timeout: float | None = None) -> SamplingClient: ...
        async def result_async(self, timeout: float | None = None) -> SamplingClient: ...  # noqa: ASYNC109
        def __await__(self) -> Generator[Any, Any, SamplingClient]: ...

    class TrainingClientFuture(tinker.BackcompatTrainingClientFuture):
        """Upstream's future, of a TrainingClient of ours."""

        def result(self, timeout: float | None = None) -> TrainingClient: ...
        async def result_async(self, timeout: float | None = None) -> TrainingClient: ...  # noqa: ASYNC109
        def __await__(self) -> Generator[Any, Any, TrainingClient]: ...


def _sampling_future(
    holder: InternalClientHolder, pending: tinker.BackcompatSamplingClientFuture
) -> "SamplingClientFuture":
    future = tinker.BackcompatSamplingClientFuture(_adopt(holder, pending, SamplingClient))
    return cast("SamplingClientFuture", future)


def _configured(
    holder: InternalClientHolder | None, base_url: str | None, api_key: str | None
) -> tuple[str | None, str | None]:
    """URL and key for a client; with a holder, which has both, they stay as they are."""
    if holder is not None:
        return base_url, api_key
    found = opened(base_url, api_key)
    return found.base_url, found.api_key


class RestClient(tinker.RestClient):
    """Upstream's RestClient, with our settings."""

    def __init__(
        self,
        _holder: InternalClientHolder | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        base_url, api_key = _configured(_holder, base_url, api_key)
        super().__init__(_holder, base_url=base_url, api_key=api_key)


class AdminClient(tinker.AdminClient):
    """Upstream's AdminClient, with our settings. Our servers offer usage and storage, and no audit log."""

    def __init__(
        self,
        _holder: InternalClientHolder | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        base_url, api_key = _configured(_holder, base_url, api_key)
        super().__init__(_holder, base_url=base_url, api_key=api_key)


class ServiceClient(tinker.ServiceClient):
    """Upstream's ServiceClient, with our settings: the way into a MinT server.

    Args:
        base_url: the server; else MINT_BASE_URL, TINKER_BASE_URL, or the embedded local server,
            which is started or joined now.
        api_key: "sk-…"; else MINT_API_KEY, TINKER_API_KEY, or the embedded server's own.

    Raises:
        ConfigError: a key without a server, a server without a key, or neither with the embedded
            server turned off.

    The first call raises ServerFaultError if nobody answers at the URL.
    """

    def __init__(
        self,
        user_metadata: dict[str, str] | None = None,
        project_id: str | None = None,
        *,
        display_name: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        default_headers_overrides: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._connection = opened(base_url, api_key)
        super().__init__(
            user_metadata,
            project_id,
            display_name=display_name,
            base_url=self._connection.base_url,
            api_key=self._connection.api_key,
            default_headers_overrides=default_headers_overrides,
            **kwargs,
        )

    def _get_session_holder(self) -> InternalClientHolder:
        if self._session_holder is None and not self._closed:
            if self._connection.is_embedded:
                # The session is made by the first call; the local server may have left since.
                self._connection = opened(None, None)
                self._base_url, self._api_key = self._connection.base_url, self._connection.api_key
            else:
                reach(self._connection)  # or upstream tries for five minutes without a word
        return super()._get_session_holder()

    def _get_rest_holder(self) -> InternalClientHolder:
        is_known = self._session_holder or self._rest_holder or self._connection.is_embedded
        if not is_known and not self._closed:
            reach(self._connection)  # as above, for calls that need no session
        return super()._get_rest_holder()

    def _create_lora_training_client_submit(
        self, *arguments: Any, **named: Any
    ) -> AwaitableConcurrentFuture[tinker.TrainingClient]:
        pending = super()._create_lora_training_client_submit(*arguments, **named)
        return _adopt(self.holder, pending, TrainingClient)

    def _create_training_client_via_load_weights_submit(
        self, *arguments: Any, **named: Any
    ) -> AwaitableConcurrentFuture[tinker.TrainingClient]:
        pending = super()._create_training_client_via_load_weights_submit(*arguments, **named)
        return _adopt(self.holder, pending, TrainingClient)

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: RetryConfig | None = None,
        record_stability_info: bool = False,
    ) -> "SamplingClientFuture":
        """A SamplingClient for a base model or for saved weights (`tinker://…` or `mint://…`)."""
        if model_path is not None and model_path.startswith("mint://"):
            model_path = "tinker://" + model_path.removeprefix("mint://")
        pending = super().create_sampling_client(
            model_path, base_model, retry_config, record_stability_info
        )
        return _sampling_future(self.holder, pending)

    def server_extensions(self) -> frozenset[str]:
        """What the server does beyond upstream's service, by name: "loss_temperature",
        "prompt_temperature", "reverse_kl", …; empty for a server that is not ours. One request."""
        return extensions(self._connection)

    def _rest_client(self) -> RestClient:
        return RestClient(self._get_rest_holder())

    def create_rest_client(self) -> RestClient:
        """A RestClient for the same server, with the same key. Upstream's warns that one may make a
        RestClient oneself; but that asks for the key again, which only this client may have."""
        return self._rest_client()

    if TYPE_CHECKING:  # upstream's methods end in those above; only what they return is ours

        def create_lora_training_client(
            self,
            base_model: str,
            rank: int = 32,
            seed: int | None = None,
            train_mlp: bool = True,
            train_attn: bool = True,
            train_unembed: bool = True,
            user_metadata: dict[str, str] | None = None,
            optimizer: upstream_types.OptimizerConfig | None = None,
        ) -> "TrainingClientFuture": ...

        async def create_lora_training_client_async(
            self,
            base_model: str,
            rank: int = 32,
            seed: int | None = None,
            train_mlp: bool = True,
            train_attn: bool = True,
            train_unembed: bool = True,
            user_metadata: dict[str, str] | None = None,
            optimizer: upstream_types.OptimizerConfig | None = None,
        ) -> TrainingClient: ...

        def create_training_client_from_state(
            self,
            path: str,
            base_model: str | None = None,
            user_metadata: dict[str, str] | None = None,
            weights_access_token: str | None = None,
            optimizer: upstream_types.OptimizerConfig | None = None,
        ) -> "TrainingClientFuture": ...

        async def create_training_client_from_state_async(
            self,
            path: str,
            base_model: str | None = None,
            user_metadata: dict[str, str] | None = None,
            weights_access_token: str | None = None,
            optimizer: upstream_types.OptimizerConfig | None = None,
        ) -> TrainingClient: ...

        def create_training_client_from_state_with_optimizer(
            self,
            path: str,
            base_model: str | None = None,
            user_metadata: dict[str, str] | None = None,
            weights_access_token: str | None = None,
        ) -> "TrainingClientFuture": ...

        async def create_training_client_from_state_with_optimizer_async(
            self,
            path: str,
            base_model: str | None = None,
            user_metadata: dict[str, str] | None = None,
            weights_access_token: str | None = None,
        ) -> TrainingClient: ...

        async def create_sampling_client_async(
            self,
            model_path: str | None = None,
            base_model: str | None = None,
            retry_config: RetryConfig | None = None,
            record_stability_info: bool = False,
        ) -> SamplingClient: ...


# ------------------------------------------------------- operations of our own


def submit_passes(
    training: tinker.TrainingClient,
    path: str,
    chunks: Sequence[dict[str, Any]],
    finish: Callable[[upstream_types.ForwardBackwardOutput], upstream_types.ForwardBackwardOutput],
) -> tinker.APIFuture[upstream_types.ForwardBackwardOutput]:
    """Send requests for passes to a route of ours, in the client's order of calls and with its
    numbers, as upstream sends the chunks of a forward_backward.

    Args:
        chunks: bodies; model_id and seq_id are added. One at least.
        finish: what is left to do once upstream has put the chunks' results together.
    """
    holder, observer = training.holder, training._queue_state_logger
    numbers = training._reserve_request_ids(len(chunks))

    async def submit(number: int, body: dict[str, Any]) -> tinker.APIFuture[Any]:
        began = time.time()
        numbered = {**body, "model_id": training._guaranteed_model_id(), "seq_id": number + 1}
        async with training._take_turn(number):
            promised = await _post(holder, ClientConnectionPoolType.TRAIN, path, numbered)
        return _APIFuture(
            upstream_types.ForwardBackwardOutput, holder, promised, began, "ForwardBackward",
            observer,
        )  # fmt: skip

    async def run() -> upstream_types.ForwardBackwardOutput:
        pairs = zip(numbers, chunks, strict=True)
        futures = await asyncio.gather(*(submit(number, body) for number, body in pairs))
        return finish(
            await _CombinedAPIFuture(list(futures), combine_fwd_bwd_output_results, holder)
        )

    return holder.run_coroutine_threadsafe(run())


def submit(
    service: tinker.ServiceClient, path: str, body: dict[str, Any], answer: type[Client]
) -> tinker.APIFuture[Client]:
    """Send a request to a route of ours; its retries have one idempotency key."""
    holder = service.holder

    async def run() -> Client:
        began, key = time.time(), uuid.uuid4().hex
        promised = await _post(holder, ClientConnectionPoolType.TRAIN, path, body, key)
        return await _APIFuture(answer, holder, promised, began, answer.__name__)

    return holder.run_coroutine_threadsafe(run())


async def _post(
    holder: InternalClientHolder,
    pool: ClientConnectionPoolType,
    path: str,
    body: dict[str, Any],
    key: str | None = None,
) -> upstream_types.UntypedAPIFuture:
    async def send() -> upstream_types.UntypedAPIFuture:
        with holder.aclient(pool) as client:
            return await client.post(
                path,
                body=body,
                cast_to=upstream_types.UntypedAPIFuture,
                options={"headers": {"X-Idempotency-Key": key}} if key else {},
            )

    return await holder.execute_with_retries(send)


_OURS: Sequence[type] = (ServiceClient, TrainingClient, SamplingClient, RestClient, AdminClient)
for _client in _OURS:
    _client.__module__ = "mint"  # errors and reprs name them as users do
