"""The way from a recipe to the service: the only module of the recipes that calls SDK clients.

What it knows of the SDK and nobody else has to (tinker 0.22 to 0.38):

- calls that make a client wait for it in older releases and promise it in newer ones;
- a promise has many forms (mint.recipe.promises);
- some fields of answers are not there in every release.

Clients are taken as they are, ours, upstream's or a test's, and called by name.
"""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import mint
from mint import types
from mint.recipe.promises import Submitted
from mint.recipe.promises import resolved as resolved

log = logging.getLogger(__name__)

CLOSING_S = 10.0
"""The SDK would try for minutes to tell a server that is gone."""


async def _in_thread(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A call that may block: in older SDKs until the client is there, in newer ones until a session
    is open."""
    return await resolved(await asyncio.to_thread(call, *arguments, **named))


# ---------------------------------------------------------------- connection


class Service:
    """One connection: makes clients, asks what the server can do, deletes checkpoints.

    As a context manager it ends the session that it opened, so that the server need not wait for it
    to fall silent; a client that was given is left open.
    """

    def __init__(self, client: Any, *, owns_client: bool = False) -> None:
        self.client = client
        self._owns_client = owns_client

    @classmethod
    async def connect(
        cls, *, base_url: str | None, user_metadata: dict[str, str], client: Any | None = None
    ) -> "Service":
        """Connect, or take a client that is connected.

        Args:
            base_url: None: as the settings of `mint` say (MINT_BASE_URL, or the embedded server).
            user_metadata: kept by the server with the session; a client that is given has its own.
        """
        if client is not None:
            return cls(await resolved(client))
        made = await asyncio.to_thread(mint.ServiceClient, user_metadata, base_url=base_url)
        return cls(made, owns_client=True)

    async def __aenter__(self) -> "Service":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        if error is None:
            await self.close("success")
        else:
            await self.close("errored" if isinstance(error, Exception) else "interrupted")

    async def close(self, status: Literal["success", "errored", "interrupted"]) -> None:
        """End the session, if it is ours and the SDK can (not before 0.38). A server that is gone is
        no reason to fail, nor to wait."""
        end = getattr(self.client, "close", None) if self._owns_client else None
        if end is None:
            return
        try:
            async with asyncio.timeout(CLOSING_S):
                await resolved(end(status))
        except Exception as error:
            log.info("The session could not be ended: %s: %s", type(error).__name__, error)

    async def create_lora_training_client(
        self, base_model: str, rank: int, user_metadata: dict[str, str] | None = None
    ) -> Any:
        """A client that trains a new adapter of `rank` on `base_model`."""
        create = self.client.create_lora_training_client
        return await _in_thread(create, base_model, rank, user_metadata=user_metadata)

    async def create_training_client_from_state(
        self, path: str, *, with_optimizer: bool, user_metadata: dict[str, str] | None = None
    ) -> Any:
        """A client that trains on from saved weights, with the optimizer's moments or new ones."""
        create = (
            self.client.create_training_client_from_state_with_optimizer
            if with_optimizer
            else self.client.create_training_client_from_state
        )
        return await _in_thread(create, path, user_metadata=user_metadata)

    async def create_sampling_client(
        self, *, model_path: str | None = None, base_model: str | None = None
    ) -> Any:
        """A client that samples from saved weights, or from a base model."""
        named = {"model_path": model_path, "base_model": base_model}
        asked = {name: value for name, value in named.items() if value is not None}
        return await _in_thread(self.client.create_sampling_client, **asked)

    async def supported_models(self) -> list[str]:
        """Names of the base models that the server offers."""
        told = await asyncio.to_thread(self._capabilities)
        return [str(one.model_name) for one in told.supported_models]

    def _capabilities(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a newer call that older SDKs lack
            return self.client.get_server_capabilities()

    async def scales_loss_by_temperature(self) -> bool:
        """Whether losses take the temperature their data was sampled at, loss_fn_config["temperature"],
        and prompts are scored at one. Only a server of ours says so, and only its client asks."""
        ask = getattr(self.client, "server_extensions", None)
        if ask is None:
            return False
        return {"loss_temperature", "prompt_temperature"} <= await asyncio.to_thread(ask)

    async def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint (tinker://…) from the server."""
        rest = await _in_thread(self.client.create_rest_client)
        await resolved(rest.delete_checkpoint_from_tinker_path(path))

    async def user_metadata_of(self, path: str) -> dict[str, str]:
        """What was noted with the training run that a checkpoint comes from."""
        rest = await _in_thread(self.client.create_rest_client)
        run = await resolved(rest.get_training_run_by_tinker_path(path))
        return dict(getattr(run, "user_metadata", None) or {})


# ------------------------------------------------------------------ training


async def submit_forward_backward(
    training_client: Any,
    data: Sequence[types.Datum],
    loss_fn: str,
    loss_fn_config: dict[str, Any] | None,
) -> Awaitable[types.ForwardBackwardOutput]:
    """Submit one gradient; returns once its place in the order of calls is taken."""
    named = {} if loss_fn_config is None else {"loss_fn_config": loss_fn_config}
    return Submitted(training_client.forward_backward(list(data), loss_fn, **named))


async def submit_optim_step(
    training_client: Any, adam: types.AdamParams
) -> Awaitable[types.OptimStepResponse]:
    """Submit one optimizer step; returns once its place in the order of calls is taken."""
    return Submitted(training_client.optim_step(adam))


def submit_save_state(
    training_client: Any, name: str, ttl_seconds: int | None
) -> Submitted[types.SaveWeightsResponse]:
    """Submit a save of weights and optimizer; its `path` is one to resume from."""
    return Submitted(training_client.save_state(name, ttl_seconds=ttl_seconds))


def submit_save_weights_for_sampler(
    training_client: Any, name: str, ttl_seconds: int | None
) -> Submitted[types.SaveWeightsForSamplerResponse]:
    """Submit a save of weights for sampling; its `path` is one to sample from."""
    return Submitted(training_client.save_weights_for_sampler(name, ttl_seconds=ttl_seconds))


async def ephemeral_sampling_client(training_client: Any) -> Any:
    """A client that samples from the weights as they are now, under no name.

    Called on the loop, since the order of calls is that of the training client's; so an older SDK,
    whose plain call would block it, is asked by its async twin.
    """
    twin = getattr(training_client, "save_weights_and_get_sampling_client_async", None)
    plain = training_client.save_weights_and_get_sampling_client
    return await resolved(plain() if twin is None or _is_deprecated(twin) else twin())


def _is_deprecated(method: Any) -> bool:
    return getattr(method, "__deprecated__", None) is not None


# ------------------------------------------------------------------ sampling


async def sample(
    sampling_client: Any,
    prompt: types.ModelInput,
    *,
    num_samples: int,
    params: types.SamplingParams,
) -> types.SampleResponse:
    """Sample continuations of a prompt."""
    return await resolved(
        sampling_client.sample(prompt=prompt, num_samples=num_samples, sampling_params=params)
    )


async def compute_logprobs(
    sampling_client: Any, model_input: types.ModelInput, temperature: float = 1.0
) -> list[float | None]:
    """Logprobs of a text's tokens, natural logs; None for the first, which nothing precedes.

    Args:
        temperature: other than 1 only where the server scores prompts at a temperature
            (Service.scales_loss_by_temperature); another server would score at 1 without a word.
    """
    if temperature == 1.0:
        return await resolved(sampling_client.compute_logprobs(model_input))
    params = types.SamplingParams(max_tokens=1, temperature=temperature)
    answer = await resolved(
        sampling_client.sample(
            prompt=model_input, num_samples=1, sampling_params=params, include_prompt_logprobs=True
        )
    )
    return list(answer.prompt_logprobs)


def sequence_id(sequence: Any) -> str | None:
    """The name under which later requests can refer to a sampled sequence; older SDKs give none."""
    return getattr(sequence, "sequence_id", None) or None


def cache_hit_tokens(response: Any) -> int:
    """How many tokens of a prompt the server had read before; older SDKs say nothing, so 0."""
    return getattr(response, "prompt_cache_hit_tokens", None) or 0
