"""The tinker-shaped public types: upstream's, with a SamplingParams that has `stop_token_ids`."""

from tinker.types import *  # noqa: F403  # pyright: ignore

from mint.client.sampling_params import SamplingParams as SamplingParams
