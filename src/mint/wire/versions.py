"""Which SDKs we answer, what we tell them about ourselves, and who gets protobuf."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

JSON = "application/json"
PROTOBUF = "application/x-protobuf"

MAX_CHUNK_DATUMS = 4096
MAX_CHUNK_BYTES = 64_000_000
"""What we let a client put into one gradient request: a whole batch of most people. The server's
body limit is above it, since a single datum beyond it is sent alone."""

CLIENT_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # Plain keys stay plain: the exchange for a JWT would need an account service.
        "pjwt_auth_enabled": False,
        "credential_default_source": "api_key",
        # Chunks of a batch one after the other: a chunk refused out of order blocks the client
        # for good (measured with 0.22, 0.25 and 0.38).
        "parallel_fwdbwd_chunks": False,
        # Protobuf also from 0.19 to 0.24, so that there is one hot path.
        "proto_write_fwdbwd": True,
        "proto_compress_fwdbwd": False,
        "fwdbwd_max_chunk_len": MAX_CHUNK_DATUMS,
        "fwdbwd_max_chunk_bytes_count": MAX_CHUNK_BYTES,
        "fwdbwd_dispatch_bytes_semaphore_size": 4 * MAX_CHUNK_BYTES,
        # httpx keeps its timeouts; the other transport was seen not to.
        "use_pyqwest_transport": False,
        "create_model_via_load_weights": True,
        "sample_use_retrieve_futures": False,
        # Copies of a sampling client get numbers of ours, which never meet.
        "sample_join_sampling_session": True,
        "custom_loss_server_side": False,
    }
)
"""Answer to client/config. Never a null: it stops the client."""

DYNAMIC_CONFIG: Mapping[str, Any] = MappingProxyType(
    {"refresh_interval_sec": 300, "sample_cancel_enabled": True, "sample_cancel_max_batch_size": 64}
)
"""Answer to client/dynamic_config."""

_USER_AGENT = re.compile(r"Tinker/Python (\d+)\.(\d+)")
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, order=True)
class SdkVersion:
    """Release of the official SDK, as far as answers depend on it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = SdkVersion(0, 6)
NEWEST = SdkVersion(0, 38)
"""The releases that `make test-sdks` runs lie between these two, themselves included."""

EXTERNAL_SINCE = SdkVersion(0, 30)
"""Older SDKs fail on a listing with a checkpoint of type "external" in it."""


def sdk_release(told: str) -> SdkVersion | None:
    """The SDK that calls itself so, as in "0.38.0"; None: that is no version."""
    found = _VERSION.match(told)
    return SdkVersion(int(found[1]), int(found[2])) if found else None


def greeting(told: str, server: str) -> dict[str, str]:
    """What a new session's client logs: nothing, or that its SDK is not one we know.

    Args:
        told: the SDK's version, as it says itself.
        server: our own version.
    """
    sdk = sdk_release(told)
    if sdk is None or OLDEST <= sdk <= NEWEST:
        return {}
    level, side = ("error", "older") if sdk < OLDEST else ("warning", "newer")
    return {
        f"{level}_message": f"tinker {told} is {side} than what this server (MinT {server}) was "
        f"tested with, tinker {OLDEST} to {NEWEST}: calls may fail. Install one of those, or "
        "another MinT."
    }


def sdk_version(user_agent: str | None) -> SdkVersion | None:
    """The SDK behind a `User-Agent`; None: something else is calling."""
    found = _USER_AGENT.search(user_agent or "")
    return SdkVersion(int(found[1]), int(found[2])) if found else None


def wants_protobuf(accept: str | None) -> bool:
    """Whether a poll's `Accept` header asks for protobuf results (SDKs from 0.18)."""
    return PROTOBUF in (accept or "")
