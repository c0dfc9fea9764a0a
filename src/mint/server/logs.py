"""Structured logs: a line for people, or one JSON object a line for machines."""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, process, message, and what `extra` gave."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up_logs(log_format: str, process: str) -> None:
    """Log to stderr from now on, as `process` ("api" or "engine")."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter(process))
    else:
        form = f"%(asctime)s %(levelname)-7s {process}: %(message)s"
        handler.setFormatter(logging.Formatter(form, datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # At INFO these tell every migration look and every request; a path may hold more than we want.
    for name in ("alembic", "uvicorn.access", "httpx", "httpcore", "filelock"):
        logging.getLogger(name).setLevel(logging.WARNING)
