"""One limit for a gap between logprobs, wherever it is asked for."""

from pathlib import Path

import pytest

from mint.core.parity import LARGEST_GAP, largest_gap
from mint.torch_engine.settings import EngineSettings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_coarsest_dtype_decides():
    assert largest_gap("float32") == 2e-3
    assert largest_gap("float32", "bfloat16") == 0.5
    assert largest_gap("float32", "some_float8") == 0.5


@pytest.mark.parametrize("dtype", LARGEST_GAP)
def test_the_engine_warns_from_the_limit_on(tmp_path: Path, dtype: str):
    settings = EngineSettings(models=(), scratch=tmp_path, dtype=dtype)
    assert settings.parity_threshold == largest_gap(dtype)


@pytest.mark.parametrize("page", ["en/numerics.md", "zh/numerics.md"])
def test_the_docs_have_these_limits(page: str):
    text = (DOCS / page).read_text()
    assert all(f"{dtype} {gap:g}" in text for dtype, gap in LARGEST_GAP.items())
