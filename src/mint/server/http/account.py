"""Who a key belongs to, what was used, and what of upstream's account service is not offered."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from mint.core.errors import UnsupportedError
from mint.core.ids import KeyId
from mint.server.http.deps import Caller, UsageOf, Who
from mint.server.service.usage import KeyUsage, OwnerUsage
from mint.server.store.records import Storage, Usage

router = APIRouter()

_GIGABYTE = 1e9


@router.get("/api/v1/auth/apikey/me")
async def own_key(who: Who, usage: UsageOf) -> dict[str, Any]:
    """The key of this request; clients check a pasted key with it. Never its secret."""
    key = await usage.own_key(who)
    return {
        "key_id": int(key.key_id.removeprefix("key-"), 16),  # the SDK wants a number
        "name": key.name,
        "note": f"{key.key_id}, ends in {key.hint}",
        "details": {
            "org_details": {"name": "MinT"},
            "user_details": {"email": key.owner},
        },
    }


@router.delete("/api/v1/auth/apikey/me", status_code=204)
async def revoke_own_key(who: Who, usage: UsageOf) -> Response:
    """Make the key of this request useless (`tinker auth logout`)."""
    await usage.revoke_own_key(who)
    return Response(status_code=204)


@router.post("/api/v1/auth/token")
async def token(caller: Caller) -> None:
    """Not offered; clients ask only where client/config tells them to."""
    raise UnsupportedError(
        "not supported: this server (MinT) takes API keys as they are and exchanges none "
        "(client/config: pjwt_auth_enabled is false)."
    )


@router.get("/api/v1/audit")
async def audit(caller: Caller) -> None:
    """Not offered."""
    raise UnsupportedError("not supported: this server (MinT) keeps no audit log.")


@router.post("/api/v1/create_custom_loss")
async def create_custom_loss(caller: Caller) -> None:
    """Not offered; clients compute such losses themselves unless client/config tells otherwise."""
    raise UnsupportedError(
        "not supported: this server (MinT) runs no losses of its clients. "
        "forward_backward_custom computes the same gradient with the loss on your side."
    )


@router.post("/api/v1/retrieve_futures")
async def retrieve_futures(caller: Caller) -> None:
    """Not offered; clients poll each result by itself unless client/config tells otherwise."""
    raise UnsupportedError(
        "not supported: this server (MinT) tells of one result at a time. Poll each with "
        "retrieve_future."
    )


@router.get("/api/v1/billing/usage/events")
async def billed_usage(
    who: Who,
    usage: UsageOf,
    starting_on: Annotated[AwareDatetime, Query()],
    ending_before: Annotated[AwareDatetime, Query()],
) -> dict[str, Any]:
    """What was computed, by the hour. Without costs: nothing here has a price."""
    hours = await usage.by_hour(who, starting_on, ending_before)
    return {"data": [event for hour in hours for event in _events(hour)], "sessions": {}}


@router.get("/api/v1/billing/usage/checkpoints/current")
async def stored_now(who: Who, usage: UsageOf, project_id: str | None = None) -> dict[str, Any]:
    """What checkpoints take on disk at present."""
    stored = await usage.storage(who)
    return {"data": [_stored(s) for s in stored if project_id in (None, s.project_id)]}


@router.get("/api/v1/mint/usage")
async def overview(who: Who, usage: UsageOf) -> dict[str, Any]:
    """What each key did and each owner stores: of all owners for an admin, else of the caller."""
    return {"owners": [_owner(owner) for owner in await usage.overview(who)]}


@router.delete("/api/v1/mint/keys/{key_id}", status_code=204)
async def revoke_key(key_id: str, who: Who, usage: UsageOf) -> Response:
    """Make a key useless; for admins."""
    await usage.revoke_key(who, KeyId(key_id))
    return Response(status_code=204)


def _events(hour: Usage) -> Iterator[dict[str, Any]]:
    start = hour.hour
    assert start is not None
    envelope = {
        "bucket_start": start.isoformat(),
        "bucket_end": (start + timedelta(hours=1)).isoformat(),
        "base_model": hour.base_model or None,
        "user_id": hour.owner,
        "user_name": hour.owner,
    }
    amounts: list[tuple[int, dict[str, Any]]] = [
        (hour.trained_tokens, {"type": "training", "token_count": hour.trained_tokens}),
        (
            hour.prompt_tokens,
            {"type": "sampling_prefill", "cached": False, "token_count": hour.prompt_tokens},
        ),
        (hour.sampled_tokens, {"type": "sampling_sample", "token_count": hour.sampled_tokens}),
        (hour.checkpoints, {"type": "checkpoint", "count": hour.checkpoints}),
    ]
    for amount, told in amounts:
        if amount:
            yield {**envelope, "event_info": told}


def _stored(stored: Storage) -> dict[str, Any]:
    return {
        "project_id": stored.project_id,
        "org_user_urn": stored.owner,
        "user_name": stored.owner,
        "checkpoint_count": stored.checkpoints,
        "size_bytes": stored.size_bytes,
        "size_gigabytes": stored.size_bytes / _GIGABYTE,
    }


def _owner(used: OwnerUsage) -> dict[str, Any]:
    return {
        "owner": used.owner,
        "last_seen_at": _time(
            max((k.key.last_used_at for k in used.keys if k.key.last_used_at), default=None)
        ),
        "storage": {
            "checkpoints": sum(stored.checkpoints for stored in used.storage),
            "size_bytes": sum(stored.size_bytes for stored in used.storage),
        },
        "keys": [_key(key) for key in used.keys],
        "without_key": _used(used.unattributed),
    }


def _key(used: KeyUsage) -> dict[str, Any]:
    key = used.key
    return {
        "key_id": key.key_id,
        "name": key.name,
        "ends_in": key.hint,
        "is_admin": key.is_admin,
        "created_at": _time(key.created_at),
        "revoked_at": _time(key.revoked_at),
        "last_seen_at": _time(key.last_used_at),
        "used": _used(used.used),
    }


def _used(used: Usage | None) -> dict[str, int]:
    names = (
        "operations",
        "failed",
        "trained_tokens",
        "prompt_tokens",
        "sampled_tokens",
        "checkpoints",
    )
    return {name: getattr(used, name) if used else 0 for name in names}


def _time(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
