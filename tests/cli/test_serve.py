"""`mint serve` refuses at its start what it could not compute, not at the first token."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mint.core.errors import UnsupportedError
from mint.testing import TinyModel, tiny_model
from mint.testing.service import without_settings
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.settings import EngineSettings

REFUSED: dict[str, dict[str, Any]] = {
    "use_sliding_window": {"sliding_window": 64, "use_sliding_window": True},
    "model_type": {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"]},
    "quantization_config": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    "rope_scaling": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
}
"""Config field to the changes that make a model one we would compute wrongly."""


def model_with(folder: Path, field: str) -> TinyModel:
    model = tiny_model(folder, "m", family="qwen2")
    path = model.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | REFUSED[field]))
    return model


@pytest.mark.parametrize("field", list(REFUSED))
def test_an_engine_is_not_made_for_a_model_it_would_compute_wrongly(tmp_path, field):
    settings = EngineSettings(models=(model_with(tmp_path, field).spec,), scratch=tmp_path / "s")

    with pytest.raises(UnsupportedError, match=f"base model m cannot be served: .*{field}"):
        TorchEngine(settings)


def refused(tmp_path: Path, model: str, device: str) -> str:
    """The one line with which `mint serve` ends."""
    command = [sys.executable, "-m", "mint.cli.main", "serve", "--port", "0", "--device", device]
    ended = subprocess.run(
        [*command, "--data", str(tmp_path / "data"), "--model", model],
        env={**without_settings(os.environ), "MINT_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("Error")]
    return line


def test_the_command_then_ends_with_one_line_that_names_the_field(tmp_path):
    line = refused(tmp_path, model_with(tmp_path, "use_sliding_window").spec, "cpu")

    assert "base model m cannot be served: use_sliding_window is true" in line


def test_the_command_refuses_a_device_that_is_not_there(tmp_path):
    if torch.backends.mps.is_available():
        pytest.skip("there is a Metal device here")
    line = refused(tmp_path, tiny_model(tmp_path, "m").spec, "mps")

    assert "device='mps': this torch or this machine has no Metal device" in line
