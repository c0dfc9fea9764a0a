"""Where a run's numbers go: metrics.jsonl always; a table on stderr and Weights & Biases if asked."""

import logging
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.stores.json_lines import plain_numbers
from mint.recipe.stores.jsonable import jsonable
from mint.recipe.stores.log_lines import RunLogHandler, close_log, open_log
from mint.recipe.stores.run_folder import RunFolder

log = logging.getLogger(__name__)


class MetricsSink(Protocol):
    """One place that metrics go to."""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None: ...
    def log_hparams(self, config: Any) -> None: ...
    def log_long_text(self, key: str, text: str) -> None: ...
    def log_summary(self, summary: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...
    def get_logger_url(self) -> str | None: ...


class Logger:
    """All sinks of a run as one; a context manager that closes them."""

    def __init__(self, sinks: Sequence[MetricsSink], lines: RunLogHandler | None = None) -> None:
        self._sinks = sinks
        self._lines = lines

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write one row, flushed."""
        for sink in self._sinks:
            sink.log_metrics(metrics, step)

    def log_hparams(self, config: Any) -> None:
        """Write the config down."""
        for sink in self._sinks:
            sink.log_hparams(config)

    def log_long_text(self, key: str, text: str) -> None:
        """Keep a text: in the log lines, and where the tracker shows texts."""
        for sink in self._sinks:
            sink.log_long_text(key, text)

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep what the whole run came to: in the log lines, and as the tracker's summary."""
        for sink in self._sinks:
            sink.log_summary(summary)

    def get_logger_url(self) -> str | None:
        """Where a tracker shows the run; None without one."""
        urls = (sink.get_logger_url() for sink in self._sinks)
        return next((url for url in urls if url), None)

    def close(self) -> None:
        """Close every sink, even if one fails."""
        try:
            for sink in self._sinks:
                try:
                    sink.close()
                except Exception:
                    log.exception("Closing %s failed.", type(sink).__name__)
        finally:
            if self._lines is not None:
                close_log(self._lines)
                self._lines = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class FolderSink:
    """metrics.jsonl and config.json of a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        first = {} if step is None else {"step": step}
        self._folder.append_row({**first, **metrics, **first})

    def log_hparams(self, config: Any) -> None:
        self._folder.write_config(config)

    def log_long_text(self, key: str, text: str) -> None:
        log.info("%s:\n%s", key, text)

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        log.info("Summary: %s", plain_numbers(summary))

    def close(self) -> None: ...

    def get_logger_url(self) -> str | None:
        return None


class TableSink:
    """A table of each row, on stderr."""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        width = max((len(key) for key in metrics), default=0)
        lines = [f"{key:<{width}}  {_shown(value)}" for key, value in metrics.items()]
        head = "" if step is None else f"Step {step}\n"
        sys.stderr.write(head + "\n".join(f"  {line}" for line in lines) + "\n")

    def log_hparams(self, config: Any) -> None: ...
    def log_long_text(self, key: str, text: str) -> None: ...
    def log_summary(self, summary: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...

    def get_logger_url(self) -> str | None:
        return None


class WandbSink:
    """Weights & Biases, imported only here."""

    def __init__(self, project: str, name: str | None, folder: Path) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ConfigurationError(
                f"wandb_project={project!r}, but the package wandb is not installed. Install it, or "
                "leave wandb_project out: metrics.jsonl is written in any case."
            ) from error
        self._wandb = wandb
        self._run = wandb.init(project=project, name=name, dir=str(folder))

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._run.log(plain_numbers(metrics), step=step)

    def log_hparams(self, config: Any) -> None:
        self._run.config.update(jsonable(config), allow_val_change=True)

    def log_long_text(self, key: str, text: str) -> None:
        self._run.log({key: self._wandb.Html(f"<pre>{escape(text, quote=False)}</pre>")})

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(plain_numbers(summary))

    def close(self) -> None:
        self._run.finish()

    def get_logger_url(self) -> str | None:
        return self._run.url


def open_logger(
    folder: RunFolder | str | Path,
    *,
    wandb_project: str | None = None,
    wandb_name: str | None = None,
    config: Any = None,
    table: bool = False,
    log_lines: bool = True,
) -> Logger:
    """Open the log of a run.

    Args:
        wandb_project: also log there. None: nothing of it is imported.
        config: written down now, if given.
        table: show each row on stderr; a loop with a progress display has no need for it.
        log_lines: write our log lines to logs.log, and warnings to stderr.

    Raises:
        ConfigurationError: wandb_project without the package.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    sinks: list[MetricsSink] = [FolderSink(folder)]
    if table:
        sinks.append(TableSink())
    if wandb_project is not None:
        sinks.append(WandbSink(wandb_project, wandb_name, folder.path))
    logger = Logger(sinks, open_log(folder.log) if log_lines else None)
    try:
        if config is not None:
            logger.log_hparams(config)
    except BaseException:  # a full disk, say: nobody else could close it
        logger.close()
        raise
    return logger


def setup_logging(
    log_dir: str,
    wandb_project: str | None = None,
    wandb_name: str | None = None,
    config: Any = None,
    do_configure_logging_module: bool = True,
) -> Logger:
    """Open the log of a loop of one's own: rows to metrics.jsonl and as tables on stderr."""
    return open_logger(
        log_dir,
        wandb_project=wandb_project,
        wandb_name=wandb_name,
        config=config,
        table=True,
        log_lines=do_configure_logging_module,
    )


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
