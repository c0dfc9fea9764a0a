"""Telemetry is taken as it comes: an error reaches the script without upstream's 30 s of waiting."""

import logging
import time

import tinker
from tests.sdks.scripting import refused

UPSTREAM_WAITS_S = 30
"""Before it raises, an SDK whose events are not accepted waits this long for its queue to drain."""


class Kept(logging.Handler):
    """What the SDK logs about its telemetry."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "telemetry" in record.name or "telemetry" in record.getMessage().lower():
            self.lines.append(record.getMessage())


kept = Kept()
logging.getLogger().addHandler(kept)
service = tinker.ServiceClient()
began = time.monotonic()
refused(
    lambda: service.create_sampling_client(base_model="nobody/nothing").result(),  # type: ignore[union-attr]
    says="nobody/nothing",
)
waited_s = time.monotonic() - began
# The one time a script looks at the clock: the wait is upstream's constant, far from what an
# answer takes.
assert waited_s < UPSTREAM_WAITS_S - 5, f"the error came after {waited_s:.0f} s"
assert kept.lines == [], kept.lines
