"""Weights that samplers read."""

import pytest
from tests.torch_engine.conftest import Tiny, random_adapter

from mint.torch_engine import checkpoint
from mint.torch_engine.samplers import SamplerShelf

PATH = "tinker://m/sampler_weights/latest"


@pytest.fixture
def shelf(tmp_path) -> SamplerShelf:
    return SamplerShelf(1 << 30, tmp_path / "scratch")


def test_a_path_that_was_saved_again_gives_what_was_saved_last(shelf, tiny: Tiny, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    adapters = [random_adapter(tiny.decoder, seed=seed) for seed in (1, 2)]
    for folder, adapter in zip(folders, adapters, strict=True):
        checkpoint.save(folder, adapter, "tiny", None)

    targets, device = tiny.decoder.targets, tiny.decoder.device
    found = [shelf.get(PATH, folder, targets, device) for folder in folders]

    for weights, adapter in zip(found, adapters, strict=True):
        assert weights.flat.equal(adapter.flat)
    assert shelf.get(PATH, folders[1], targets, device) is found[1]
