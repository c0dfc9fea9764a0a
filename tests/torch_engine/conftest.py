"""Tiny real models, plain and behind our decoder."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from mint.core.lora import LoraSpec
from mint.torch_engine import attention
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import Layout, TrainedAdapter
from mint.torch_engine.models.files import ModelFiles
from mint.torch_engine.models.loader import load_module
from mint.torch_engine.models.tiny import Family, build_tiny


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load_decoder(folder: Path) -> Decoder:
    attention.register()
    files = ModelFiles("tiny", folder, "folder")
    return Decoder(load_module(files, dtype="float32", device="cpu", attention=attention.ATTENTION))


def load_plain(folder: Path) -> PreTrainedModel:
    """The same folder as transformers alone computes it."""
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@dataclass(frozen=True)
class Tiny:
    folder: Path
    decoder: Decoder
    plain: PreTrainedModel


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """Tiny models by family and shape, each made once."""
    made: dict[object, Tiny] = {}

    def of(family: Family = "llama", **shape: object) -> Tiny:
        key = (family, *sorted(shape.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            build_tiny(folder, family=family, **shape)  # pyright: ignore[reportArgumentType]
            made[key] = Tiny(folder, load_decoder(folder), load_plain(folder))
        return made[key]

    return of


@pytest.fixture(scope="session")
def tiny(tiny_of: Callable[..., Tiny]) -> Tiny:
    return tiny_of()


def random_adapter(decoder: Decoder, *, rank: int = 4, seed: int = 0, **train: bool):
    """An adapter whose B is not zero, so that it changes the logits."""
    layout = Layout.of(LoraSpec(rank=rank, seed=seed, **train), decoder.targets)
    generator = torch.Generator().manual_seed(seed)
    flat = torch.randn(layout.size, generator=generator) * 0.05
    return TrainedAdapter(layout, flat)


def random_tokens(rng: np.random.Generator, *lengths: int) -> list[np.ndarray]:
    return [rng.integers(0, 256, n).astype(np.int32) for n in lengths]
