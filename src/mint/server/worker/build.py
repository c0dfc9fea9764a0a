"""Which engine a server computes with: the one file of the worker that knows."""

from mint.engine.protocol import Engine, OnProgress
from mint.server.settings import ServerSettings


def torch_engine(settings: ServerSettings, on_progress: OnProgress) -> Engine:
    """The engine for one device. Imports torch."""
    import torch

    from mint.torch_engine.engine import TorchEngine
    from mint.torch_engine.settings import EngineSettings

    device, dtype = settings.device, settings.dtype
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    return TorchEngine(
        EngineSettings(
            models=settings.models,
            on_demand=settings.on_demand,
            device=device,
            dtype=dtype,
            threads=settings.threads,
            memory_limit_bytes=settings.memory_limit_bytes,
            max_sequences=settings.max_sequences,
            scratch=settings.data / "scratch",
        ),
        on_progress,
    )
