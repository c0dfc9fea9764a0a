"""One packed forward gives what transformers gives, with and without LoRA."""

import numpy as np
import pytest
import torch
from tests.torch_engine import reference
from tests.torch_engine.conftest import random_adapter, random_tokens

from mint.torch_engine.packing import pack
from mint.torch_engine.prefix_tree import prefix_tree


def packed_logits(decoder, adapter, inputs):
    batch = pack(prefix_tree(inputs), inputs)
    counts = [(adapter, len(batch.tokens_T))]
    with torch.no_grad():
        hidden = decoder.hidden(
            torch.from_numpy(batch.tokens_T),
            torch.from_numpy(batch.positions_T),
            batch.plan,
            counts,
        )
        logits = decoder.logits(hidden, counts)
    return [logits[torch.from_numpy(batch.rows[i])] for i in range(len(inputs))]


def inputs_with_shared_beginnings():
    rng = np.random.default_rng(0)
    prompt, other = random_tokens(rng, 9, 6)
    rests = random_tokens(rng, 3, 5, 1, 7)
    return [
        np.concatenate([prompt, rests[0]]),
        np.concatenate([other, rests[1]]),
        np.concatenate([prompt, rests[2]]),
        prompt,
        np.concatenate([prompt, rests[3]]),
        np.concatenate([other, rests[3]]),
        rests[3],
    ]


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("llama", {}),
        ("llama", {"kv_heads": 1, "tied": False}),
        ("llama", {"kv_heads": 4}),
        ("qwen2", {}),
        ("qwen3", {"tied": False}),
        ("qwen3", {"head_dim": 16}),
    ],
)
@pytest.mark.parametrize("adapted", [False, True])
def test_packed_logits_are_those_of_transformers(tiny_of, family, shape, adapted):
    tiny = tiny_of(family, **shape)
    inputs = inputs_with_shared_beginnings()
    adapter = random_adapter(tiny.decoder) if adapted else None
    plain = reference.with_lora(tiny.plain, adapter)[0] if adapter else tiny.plain

    for ours, tokens in zip(packed_logits(tiny.decoder, adapter, inputs), inputs, strict=True):
        with torch.no_grad():
            theirs = plain(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
        assert (ours - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_logits_over_qwens_own_vocabulary_are_those_of_transformers(tiny_of, family):
    tiny = tiny_of(family, vocab="qwen")
    tokens = np.array([9707, 11, 1879, 0, 151645], dtype=np.int32)

    [ours] = packed_logits(tiny.decoder, None, [tokens])

    with torch.no_grad():
        theirs = tiny.plain(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
    assert (ours - theirs).abs().max() <= 1e-4


def test_rows_of_different_adapters_and_ranks_share_a_forward(tiny):
    inputs = random_tokens(np.random.default_rng(1), 5, 8, 4)
    adapters = [random_adapter(tiny.decoder, rank=2), None, random_adapter(tiny.decoder, rank=7)]
    batch = pack(prefix_tree(inputs), inputs)
    counts = [(a, len(t)) for a, t in zip(adapters, inputs, strict=True)]
    with torch.no_grad():
        hidden = tiny.decoder.hidden(
            torch.from_numpy(batch.tokens_T),
            torch.from_numpy(batch.positions_T),
            batch.plan,
            counts,
        )
        together = tiny.decoder.logits(hidden, counts)

    alone = [packed_logits(tiny.decoder, a, [t])[0] for a, t in zip(adapters, inputs, strict=True)]

    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=0)
    assert (alone[0] - packed_logits(tiny.decoder, None, inputs[:1])[0]).abs().max() > 0.01


def test_train_switches_choose_the_linears(tiny):
    def leaves(**train):
        adapter = random_adapter(tiny.decoder, **train)
        return {t.name.rpartition(".")[2] for t in adapter.layout.targets}

    assert leaves(train_mlp=False, train_unembed=False) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert leaves(train_attn=False, train_unembed=False) == {"gate_proj", "up_proj", "down_proj"}
    assert leaves(train_attn=False, train_mlp=False) == {"lm_head"}
