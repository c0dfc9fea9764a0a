"""A sampler with its hands full, so that what is asked after it waits for as long as we like."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

REQUESTS = 64
"""As many as a server hands to its engine at once: whatever comes then waits outside."""
SAMPLES = 64
MAX_TOKENS = 480
"""Of each: minutes of work together, most of which is called off."""


@contextmanager
def busy(url: str, key: str, model: str) -> Iterator[None]:
    """Ask a server for more than it can do, and call it off when the block ends."""
    with httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": key}, timeout=60) as http:

        def post(route: str, **body: object) -> dict[str, str]:
            answer = http.post(route, json=body)
            answer.raise_for_status()
            return answer.json() if answer.content else {}

        session = post("create_session", tags=[], sdk_version="0.38.0")["session_id"]
        sampler = post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0,
            base_model=model,
        )["sampling_session_id"]  # fmt: skip
        asked = [
            post(
                "asample", sampling_session_id=sampler, seq_id=i, num_samples=SAMPLES,
                prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
                sampling_params={"max_tokens": MAX_TOKENS, "stop": []},
            )["request_id"]
            for i in range(REQUESTS)
        ]  # fmt: skip
        try:
            yield
        finally:
            for request in asked:
                post("cancel_future", request_id=request)
            post(f"sessions/{session}/finish", reason={"type": "success"})
