"""An engine process gets transformers without what it does not use, and loses nothing by it.

Each in an interpreter of its own: what is imported stays.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # an interpreter each, with everything an engine imports

UNUSED = ("torch._dynamo.utils", "torch.distributed.tensor")
"""Not sympy, which torch imports for its first backward of a given gradient."""


def run(script: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one process says that imports the short way, trains a step, samples a token, and then
    asks for the compiler."""
    return run(
        """
        import sys
        from pathlib import Path
        from mint.torch_engine import lean_imports
        print(lean_imports.import_transformers())

        from mint.core.datum import Datum
        from mint.core.model_input import ModelInput
        from mint.core.operations import CreateModel, ForwardBackward, OptimStep, Sample
        from mint.core.lora import LoraSpec
        from mint.core.optim import AdamParams
        from mint.core.sampling import SamplingParams
        from mint.engine.protocol import Work
        from mint.torch_engine.engine import TorchEngine
        from mint.torch_engine.models.tiny import build_tiny
        from mint.torch_engine.settings import EngineSettings
        import numpy as np

        folder = Path(sys.argv[1])
        name = f"tiny={build_tiny(folder / 'm')}"
        engine = TorchEngine(EngineSettings(models=(name,), scratch=folder / "s"))
        datum = Datum(
            ModelInput.from_ints([1, 2, 3]),
            {"target_tokens": np.array([2, 3, 4]), "weights": np.ones(3, np.float32)},
        )
        for number, operation in enumerate([
            CreateModel(model_id="a", base_model="tiny", lora=LoraSpec(rank=2)),
            ForwardBackward(model_id="a", data=(datum,), loss_fn="cross_entropy"),
            OptimStep(model_id="a", params=AdamParams()),
            Sample(sampler_id="s", base_model="tiny", weights=None, num_samples=1,
                   prompt=ModelInput.from_ints([1]), params=SamplingParams(max_tokens=1)),
        ]):
            engine.start(Work(str(number), operation))
            outcomes = []
            while not outcomes:
                outcomes = engine.step()
            result = outcomes[0].result
            print(getattr(result, "message", type(result).__name__))
        print(*[name for name in sys.argv[2:] if name in sys.modules])

        import torch
        from torch.nn.attention.flex_attention import create_block_mask
        print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
        print(create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 8, 8, device="cpu").shape)
        """,
        tmp_path_factory.mktemp("lean"),
        *UNUSED,
    ).split("\n")


def test_a_process_trains_and_samples_without_compiler_and_distributed_tensors(told: list[str]):
    assert told[:5] == ["True", "ModelReady", "PassResult", "StepResult", "SampleResult"]
    assert told[5] == ""


def test_whoever_asks_for_the_compiler_later_gets_the_real_one(told: list[str]):
    assert told[6:] == ["2.0", "(1, 1, 8, 8)"]


def test_a_transformers_that_asks_for_more_is_imported_as_usual():
    said = run(
        """
        from mint.torch_engine import lean_imports
        lean_imports._MODEL = "transformers.models.llama.no_such_module"
        print(lean_imports.import_transformers())
        from transformers.models.llama.modeling_llama import LlamaForCausalLM
        from torch._dynamo.utils import counters
        from transformers.utils.import_utils import is_torch_distributed_available
        print(LlamaForCausalLM.__name__, is_torch_distributed_available())
        """
    )
    assert said.split("\n") == ["False", "LlamaForCausalLM True"]
