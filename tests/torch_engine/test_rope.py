"""Each way of scaling rotary positions that we accept gives transformers' numbers, packed and
decoded token by token; the others are refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import (
    Tiny,
    load_decoder,
    load_plain,
    random_adapter,
    random_tokens,
)
from tests.torch_engine.sampling.harness import greedy, reference_logits, request, sample_one
from tests.torch_engine.test_decoder import packed_logits

from mint.core.errors import UnsupportedError
from mint.torch_engine.models.loader import check_supported
from mint.torch_engine.models.tiny import build_tiny

NATIVE = 32
"""Context the scaled models were trained for; the tests go beyond it."""

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE},
    "yarn with its own attention factor": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE,
        "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": NATIVE,
    },
}  # fmt: skip


def with_rope(folder: Path, rope: dict[str, Any], *, field: str = "rope_scaling") -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: rope}))
    return folder


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tinies(family: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tiny]:
    """One model per rope, all of the same weights."""
    made = {}
    for name, rope in ROPES.items():
        folder = build_tiny(tmp_path_factory.mktemp("rope"), family=family, max_context=128)
        with_rope(folder, rope)
        made[name] = Tiny(folder, load_decoder(folder), load_plain(folder))
    return made


@pytest.mark.parametrize("name", list(ROPES))
def test_packed_logits_are_those_of_transformers(tinies, name):
    tiny = tinies[name]
    adapter = random_adapter(tiny.decoder)
    inputs = random_tokens(np.random.default_rng(2), 9, 100, 40)

    for ours, tokens in zip(packed_logits(tiny.decoder, adapter, inputs), inputs, strict=True):
        theirs = reference_logits(tiny, tokens.tolist(), adapter)
        assert (ours - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize("name", list(ROPES))
def test_decoding_says_what_transformers_generates_and_scores_it_alike(tinies, name):
    tiny = tinies[name]
    [prompt] = random_tokens(np.random.default_rng(3), 50)

    result = sample_one(tiny, request(prompt, max_tokens=40, temperature=0))

    [sequence] = result.sequences
    drawn = sequence.tokens.tolist()
    assert drawn == greedy(tiny, prompt.tolist(), 40, None)
    logits = reference_logits(tiny, [*prompt.tolist(), *drawn], None)[len(prompt) - 1 : -1]
    theirs = torch.log_softmax(logits, -1).gather(1, torch.tensor(drawn)[:, None])[:, 0]
    np.testing.assert_allclose(sequence.logprobs, theirs.numpy(), atol=1e-4)


def test_every_scaling_changes_the_numbers_so_that_none_was_ignored(tinies):
    [tokens] = random_tokens(np.random.default_rng(4), 60)
    logits = [packed_logits(tiny.decoder, None, [tokens])[0] for tiny in tinies.values()]

    for i, one in enumerate(logits):
        for other in logits[i + 1 :]:
            assert (one - other).abs().max() > 1e-2


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope", "proportional", "of-tomorrow"])
def test_a_scaling_that_is_not_honoured_is_refused_by_name(family, tmp_path, field, kind):
    rope = {"rope_type": kind, "factor": 2.0}
    folder = with_rope(build_tiny(tmp_path, family=family), rope, field=field)
    config = json.loads((folder / "config.json").read_text())

    with pytest.raises(UnsupportedError, match=f"{field} has rope_type='{kind}'.*linear"):
        check_supported(config, "m")


def test_a_scaling_of_one_kind_of_layer_is_seen_too(tmp_path):
    rope = {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}
    folder = with_rope(build_tiny(tmp_path), rope, field="rope_parameters")

    with pytest.raises(UnsupportedError, match="rope_type='dynamic'"):
        check_supported(json.loads((folder / "config.json").read_text()), "m")
