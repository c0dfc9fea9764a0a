"""Sampling sessions, and sampling."""

from typing import Any

from fastapi import APIRouter, Request

from mint.core.ids import SamplerId, SessionId
from mint.server.http.deps import Caller, Sampling, read
from mint.server.http.models import promise
from mint.wire import convert
from mint.wire import json_models as body

router = APIRouter()


@router.post("/api/v1/create_sampling_session")
async def create_sampling_session(
    request: Request, caller: Caller, sampling: Sampling
) -> dict[str, str]:
    """Open a sampling session on a checkpoint or a base model."""
    asked = await read(request, body.CreateSamplingSession)
    sampler = await sampling.create_session(
        caller,
        SessionId(asked.session_id),
        asked.sampling_session_seq_id,
        base_model=asked.base_model,
        path=asked.model_path,
    )
    return {"sampling_session_id": sampler.sampler_id}


@router.post("/api/v1/join_sampling_session")
async def join_sampling_session(
    request: Request, caller: Caller, sampling: Sampling
) -> dict[str, Any]:
    """Give a copy of a sampling client a number of its own, so that its requests are its own."""
    asked = await read(request, body.JoinSamplingSession)
    number = await sampling.join(caller, SamplerId(asked.sampling_session_id))
    return {"type": "join_sampling_session", "client_counter": number}


@router.get("/api/v1/samplers/{sampler_id}")
async def get_sampler(sampler_id: str, caller: Caller, sampling: Sampling) -> dict[str, Any]:
    """What a sampling session samples from."""
    sampler = await sampling.sampler(caller, SamplerId(sampler_id))
    is_saved = sampler.weights is not None and sampler.model_id is None
    return {
        "sampler_id": sampler.sampler_id,
        "base_model": sampler.base_model,
        "model_path": sampler.weights if is_saved else None,
    }


@router.post("/api/v1/asample")
async def asample(request: Request, caller: Caller, sampling: Sampling) -> dict[str, Any]:
    """Queue drawing continuations of one prompt."""
    asked = await read(request, body.Sample)
    operation_id = await sampling.sample(
        caller,
        SamplerId(asked.sampling_session_id),
        asked.seq_id,
        lambda sampler: convert.sample(
            asked, base_model=sampler.base_model, weights=sampler.weights
        ),
    )
    # One id per sequence asked for, distinct from all others; SDKs from 0.26 insist on them.
    count = min(max(asked.num_samples, 1), convert.MAX_NUM_SAMPLES)
    return promise(operation_id, sample_sequence_ids=[f"{operation_id}-{i}" for i in range(count)])
