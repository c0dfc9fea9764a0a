"""Packed micro-batches: every token has its place, and the model gives the same as one by one."""

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.torch_engine import reference
from tests.torch_engine.conftest import random_adapter
from tests.torch_engine.test_prefix_tree import tries

from mint.torch_engine.packing import pack
from mint.torch_engine.prefix_tree import micro_batches, prefix_tree


@given(tries, st.integers(1, 40))
def test_every_position_of_every_datum_is_packed_where_its_tokens_are(inputs, budget):
    seen = []
    for part in micro_batches(prefix_tree(inputs), budget):
        packed = pack(part, inputs)
        assert len(packed.tokens_T) == part.packed_tokens
        for i, rows in packed.rows.items():
            seen.append(i)
            assert packed.tokens_T[rows].tolist() == inputs[i].tolist()
            assert packed.positions_T[rows].tolist() == list(range(len(inputs[i])))
    assert sorted(seen) == list(range(len(inputs)))


def branching(rng, trunk, depth):
    """Datums that go on from `trunk` and branch again, some of them ending on the way."""
    found = []
    for _ in range(int(rng.integers(2, 4))):
        here = np.concatenate([trunk, rng.integers(0, 256, int(rng.integers(1, 14)))])
        found += [here] if depth == 0 or rng.random() < 0.3 else branching(rng, here, depth - 1)
    return [datum.astype(np.int32) for datum in found]


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32 - 1), st.sampled_from([12, 40, 1000]))
def test_logits_and_adapter_gradients_are_those_of_each_datum_alone(tiny, seed, budget):
    """Of transformers alone, in float64: several trees of several levels, cut at any budget."""
    rng = np.random.default_rng(seed)
    inputs = [d for _ in range(2) for d in branching(rng, rng.integers(0, 256, 5), depth=2)]
    slopes = [rng.normal(0, 1, (len(d), tiny.decoder.vocab_size)) for d in inputs]
    adapter = random_adapter(tiny.decoder, train_unembed=False)
    model, params = reference.with_lora(tiny.plain, adapter)

    for part in micro_batches(prefix_tree(inputs), budget):
        batch = pack(part, inputs)
        counts = [(adapter, len(batch.tokens_T))]
        hidden = tiny.decoder.hidden(
            torch.from_numpy(batch.tokens_T), torch.from_numpy(batch.positions_T), batch.plan,
            counts,
        )  # fmt: skip
        logits = tiny.decoder.logits(hidden, counts)
        loss = torch.zeros(())
        for i, rows in batch.rows.items():
            ours = logits[torch.from_numpy(rows)]
            theirs = model(input_ids=torch.from_numpy(inputs[i].astype(np.int64))[None]).logits[0]
            assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
            slope = torch.from_numpy(slopes[i])
            (theirs * slope).sum().backward()
            loss = loss + (ours * slope.float()).sum()
        loss.backward()

    expected = torch.zeros(adapter.layout.size, dtype=torch.float64)
    for name, views in adapter.layout.views(expected).items():
        for view, leaf in zip(views, params[name], strict=True):
            assert leaf.grad is not None
            view.copy_(leaf.grad)
    assert (adapter.flat_grad.double() - expected).norm() <= 1e-5 * expected.norm()
