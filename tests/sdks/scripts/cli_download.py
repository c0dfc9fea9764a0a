"""`tinker checkpoint download`."""

import tempfile
from pathlib import Path

from tests.sdks.scripting import new_model, run_tinker

path = new_model().save_state("taken").result().path
with tempfile.TemporaryDirectory() as folder:
    run_tinker("checkpoint", "download", path, "--output", folder)
    names = {file.name for file in Path(folder).rglob("*") if file.is_file()}
assert {"adapter_config.json", "adapter_model.safetensors"} <= names, names
