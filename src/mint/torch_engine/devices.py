"""Where to compute and in which format, from what was asked and what is there."""

import torch

from mint.core.errors import ConfigError


def choose_device(asked: str) -> str:
    """The device of a setting: "cpu", "mps", "cuda" or "cuda:N", or "auto".

    "auto" is CUDA if there is a device, else the CPU: MPS is asked for by name.

    Raises:
        ConfigError: it is not there, or torch cannot use it.
    """
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = asked.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (
        number and (kind != "cuda" or not number.isdecimal())
    ):
        raise ConfigError(f"device={asked!r}: give one of cpu, cuda, cuda:N, mps, auto.")
    if kind == "cuda":
        _check_cuda(asked, int(number or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(
            "device='mps': this torch or this machine has no Metal device. Use --device cpu."
        )
    return asked


def choose_dtype(asked: str, device: str) -> str:
    """ "auto" is float32 on a CPU and on MPS, bfloat16 on CUDA."""
    if asked != "auto":
        return asked
    return "bfloat16" if device.startswith("cuda") else "float32"


def _check_cuda(asked: str, number: int) -> None:
    if not torch.cuda.is_available():
        why = (
            "this torch was built without CUDA; install one that has it"
            if torch.version.cuda is None
            else "torch finds no CUDA device; see whether nvidia-smi lists one"
        )
        raise ConfigError(f"device={asked!r}: {why}, or use --device cpu.")
    if number >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"device={asked!r}: there are {count} CUDA devices, so the last is cuda:{count - 1}."
        )
