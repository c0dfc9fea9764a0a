from typing import Any

import pytest

from mint.torch_engine.models.files import ModelFiles


@pytest.fixture(scope="session")
def smollm2(embedded_model: ModelFiles) -> Any:
    """The embedded model's tokenizer, as transformers has it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_model.folder)
