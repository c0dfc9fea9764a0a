"""Which engine a server computes with: the one file of the worker that knows. Imports torch."""

import logging

import torch

from mint.engine.protocol import Engine, OnProgress
from mint.server.settings import ServerSettings
from mint.torch_engine.devices import choose_device, choose_dtype
from mint.torch_engine.lean_imports import import_transformers

import_transformers()

from mint.torch_engine.engine import TorchEngine  # noqa: E402 (it imports transformers)
from mint.torch_engine.settings import EngineSettings  # noqa: E402

_log = logging.getLogger(__name__)


def torch_engine(settings: ServerSettings, on_progress: OnProgress) -> Engine:
    """The engine for one device.

    Raises:
        ConfigError: the device is not there.
    """
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device)
    threads = torch.get_num_threads()
    shared = min(settings.decode_threads or threads, threads)
    _log.info(
        "engine: %d threads, at most %d to a product in decode rounds, %s, %s",
        threads, shared, dtype, device,
    )  # fmt: skip
    return TorchEngine(
        EngineSettings(
            models=settings.models,
            on_demand=settings.on_demand,
            preload=len(settings.models) == 1 if settings.preload is None else settings.preload,
            device=device,
            dtype=dtype,
            threads=settings.threads,
            decode_threads=settings.decode_threads,
            memory_limit_bytes=settings.memory_limit_bytes,
            max_sequences=settings.max_sequences,
            kv_layout=settings.kv_layout,
            batch_tokens=settings.batch_tokens,
            training_share=settings.training_share,
            scratch=settings.data / "scratch",
        ),
        on_progress,
    )
