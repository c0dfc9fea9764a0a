"""A device that is not there is refused in words, and "auto" takes what is there."""

import pytest
import torch

from mint.core.errors import ConfigError
from mint.torch_engine.devices import choose_device, choose_dtype


def without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("cuda", "device='cuda': .* use --device cpu"),
        ("mps", "device='mps': .* Use --device cpu"),
        ("tpu", "device='tpu': give one of cpu, cuda, cuda:N, mps, auto"),
        ("cpu:1", "device='cpu:1': give one of"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, asked, says):
    without_devices(monkeypatch)

    with pytest.raises(ConfigError, match=says):
        choose_device(asked)


def test_a_cuda_device_beyond_the_last_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert choose_device("cuda:1") == "cuda:1"
    with pytest.raises(ConfigError, match="there are 2 CUDA devices, so the last is cuda:1"):
        choose_device("cuda:2")


def test_auto_is_a_cpu_in_float32_where_there_is_no_cuda(monkeypatch):
    without_devices(monkeypatch)

    assert choose_device("auto") == "cpu"
    assert [choose_dtype("auto", one) for one in ("cpu", "mps", "cuda:1")] == [
        "float32", "float32", "bfloat16",
    ]  # fmt: skip
    assert choose_dtype("float16", "cpu") == "float16"
