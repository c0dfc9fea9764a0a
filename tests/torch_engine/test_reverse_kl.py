"""Reverse KL and its gradient against float64, against finite differences, and its invariances."""

import numpy as np
import pytest
import torch
from tests.torch_engine import reference
from tests.torch_engine.conftest import random_adapter, random_tokens
from tests.torch_engine.test_training import gradients_agree

from mint.core.datum import ReverseKLDatum
from mint.core.errors import UserError
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput
from mint.core.models import ServedModel
from mint.core.operations import ReverseKL
from mint.torch_engine import logprobs
from mint.torch_engine.budget import Budget
from mint.torch_engine.logprobs import never
from mint.torch_engine.reverse_kl import Reference, ReverseKLPass, check_vocabulary
from mint.torch_engine.shared_batch import run_batch


def compare(
    tiny, adapter, data, *, weights=None, base=None, temperature=1.0, budget=1000, memory=1000
):
    """The result of a pass against `weights` on `base` (the student's own if not given)."""
    operation = ReverseKL(
        model_id=ModelId("m"), data=tuple(data), reference_base="tiny", reference_weights=None,
        temperature=temperature,
    )  # fmt: skip
    against = Reference((base or tiny).decoder, weights)
    running = ReverseKLPass(tiny.decoder, adapter, against, operation)
    while not running.done:
        for error in run_batch(tiny.decoder, [running], Budget(memory, budget), never).values():
            raise error
    return running.result()


def continued(prompt, hint, rest, weights=None) -> ReverseKLDatum:
    """`rest` after `prompt` for the student, after `hint + prompt` for the reference."""
    read = np.concatenate([prompt, rest[:-1]])
    return ReverseKLDatum(
        ModelInput.from_ints(read),
        ModelInput.from_ints(np.concatenate([hint, read])),
        rest.astype(np.int64),
        np.ones(len(rest), np.float32) if weights is None else weights.astype(np.float32),
    )


def group_data(seed=0):
    """Two prompts with three continuations each, hints of their own, weights of either sign and 0."""
    rng = np.random.default_rng(seed)
    data = []
    for prompt, hint in zip(random_tokens(rng, 7, 5), random_tokens(rng, 6, 9), strict=True):
        for rest in random_tokens(rng, 4, 6, 1):
            weights = rng.normal(0, 1, len(rest)) * (rng.random(len(rest)) > 0.3)
            data.append(continued(prompt, hint, rest, weights))
    return data


def logits64(model, model_input: ModelInput, n: int) -> torch.Tensor:
    tokens = torch.from_numpy(model_input.tokens().astype(np.int64))
    return model(input_ids=tokens[None]).logits[0, -n:]


def in_float64(tiny, adapter, data, *, weights=None, base=None, temperature=1.0):
    """(loss, KL per datum, logprobs per datum, flat gradient) from whole float64 tables."""
    student, params = reference.with_lora(tiny.plain, adapter)
    plain = (base or tiny).plain
    other = reference.with_lora(plain, weights)[0] if weights else plain.double()
    loss, kls, logps = torch.zeros((), dtype=torch.float64), [], []
    for datum in data:
        n = len(datum.target_tokens)
        log_p = torch.log_softmax(logits64(student, datum.student_input, n) / temperature, -1)
        with torch.no_grad():
            log_q = torch.log_softmax(logits64(other, datum.reference_input, n) / temperature, -1)
        kl = (log_p.exp() * (log_p - log_q)).sum(-1)
        loss = loss + (torch.from_numpy(datum.weights).double() * kl).sum()
        kls.append(kl.detach().numpy())
        target = torch.from_numpy(datum.target_tokens)[:, None]
        logps.append(log_p.detach().gather(1, target)[:, 0].numpy())
    loss.backward()
    plain.float()
    flat = torch.zeros(adapter.layout.size, dtype=torch.float64)
    for target, views in adapter.layout.views(flat).items():
        for view, leaf in zip(views, params[target], strict=True):
            view.copy_(leaf.grad)
    return loss.item(), kls, logps, flat


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("with_weights", [False, True], ids=["base", "checkpoint"])
def test_loss_and_gradient_are_those_of_float64(tiny, temperature, with_weights):
    adapter = random_adapter(tiny.decoder, seed=1)
    weights = random_adapter(tiny.decoder, seed=2, rank=3) if with_weights else None
    data = group_data()

    found = compare(tiny, adapter, data, weights=weights, temperature=temperature)
    loss, kls, logps, grad = in_float64(
        tiny, adapter, data, weights=weights, temperature=temperature
    )

    for ours, theirs in zip(found.reverse_kl, kls, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for ours, theirs in zip(found.logprobs, logps, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert found.metrics["loss:sum"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert grad.norm() > 1e-3
    assert (adapter.flat_grad.double() - grad).norm() <= 1e-5 * grad.norm()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_the_slope_of_the_loss(tiny, temperature):
    adapter, weights = random_adapter(tiny.decoder, seed=1), random_adapter(tiny.decoder, seed=2)
    data = group_data()
    compare(tiny, adapter, data, weights=weights, temperature=temperature)
    grad = adapter.flat_grad.clone().double()
    direction = grad / grad.norm()
    start, step = adapter.flat.detach().clone(), 1e-3

    def loss_at(distance: float) -> float:
        with torch.no_grad():
            adapter.flat.copy_(start + distance * direction.float())
        return in_float64(tiny, adapter, data, weights=weights, temperature=temperature)[0]

    slope = (loss_at(step) - loss_at(-step)) / (2 * step)
    assert slope == pytest.approx(float(grad.norm()), rel=1e-3)


def test_a_student_that_is_its_reference_has_no_kl_and_no_gradient(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rng = np.random.default_rng(0)
    prompt, rest = random_tokens(rng, 5, 8)
    data = [continued(prompt, prompt[:0], rest)]
    compare(tiny, adapter, data, weights=random_adapter(tiny.decoder, seed=2))
    towards_another = adapter.flat_grad.norm().item()
    adapter.clear_grad()

    found = compare(tiny, adapter, data, weights=adapter)

    assert abs(found.reverse_kl[0]).max() <= 1e-6
    assert (
        adapter.flat_grad.norm() <= 1e-5 * towards_another
    )  # rounding, which processors differ in


def test_what_the_reference_alone_reads_makes_the_difference(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rng = np.random.default_rng(0)
    prompt, hint, rest = random_tokens(rng, 5, 6, 8)

    found = compare(tiny, adapter, [continued(prompt, hint, rest)], weights=adapter)

    assert (found.reverse_kl[0] > 1e-4).all()
    assert adapter.flat_grad.norm() > 1e-3


@pytest.mark.parametrize("budget", [1, 16, 40])
def test_micro_batches_of_any_size_give_the_same(tiny, budget):
    adapter, weights = random_adapter(tiny.decoder, seed=1), random_adapter(tiny.decoder, seed=2)
    whole = compare(tiny, adapter, group_data(), weights=weights)
    grad = adapter.flat_grad.clone()
    adapter.clear_grad()

    cut = compare(tiny, adapter, group_data(), weights=weights, budget=budget)

    assert gradients_agree(adapter.flat_grad, grad)
    assert cut.metrics == pytest.approx(whole.metrics, rel=1e-5)
    for ours, theirs in zip(cut.reverse_kl, whole.reverse_kl, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_vocabulary_in_chunks_gives_the_same(tiny, monkeypatch):
    adapter, weights = random_adapter(tiny.decoder, seed=1), random_adapter(tiny.decoder, seed=2)
    whole = compare(tiny, adapter, group_data(), weights=weights, temperature=0.7)
    grad = adapter.flat_grad.clone()
    adapter.clear_grad()
    rows = []
    logits = logprobs.Head.logits

    def watched(self, h_NE):
        rows.append(len(h_NE))
        return logits(self, h_NE)

    monkeypatch.setattr(logprobs.Head, "logits", watched)
    monkeypatch.setattr(logprobs, "CHUNK_VALUES", 3 * tiny.decoder.vocab_size)
    cut = compare(tiny, adapter, group_data(), weights=weights, temperature=0.7)

    assert max(rows) == 3
    assert gradients_agree(adapter.flat_grad, grad)
    assert cut.metrics == pytest.approx(whole.metrics, rel=1e-5)


def test_two_references_of_one_student_position_are_kept_apart(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rng = np.random.default_rng(0)
    prompt, one, other, rest = random_tokens(rng, 6, 5, 7, 9)
    data = [continued(prompt, one, rest), continued(prompt, other, rest)]

    both = compare(tiny, adapter, data)
    grad = adapter.flat_grad.clone()
    adapter.clear_grad()
    alone = [compare(tiny, adapter, [datum]) for datum in data]

    assert gradients_agree(grad, adapter.flat_grad)
    for n in range(2):
        np.testing.assert_allclose(both.reverse_kl[n], alone[n].reverse_kl[0], atol=1e-5)
    assert abs(both.reverse_kl[0] - both.reverse_kl[1]).max() > 1e-3


def test_positions_of_weight_0_are_measured_and_teach_nothing(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rng = np.random.default_rng(0)
    prompt, rest = random_tokens(rng, 5, 8)
    weights = np.zeros(len(rest))

    found = compare(tiny, adapter, [continued(prompt, prompt[:0], rest, weights)])

    assert (found.reverse_kl[0] > 0).all()
    assert found.metrics == {
        "loss:sum": 0.0, "reverse_kl:sum": 0.0, "reverse_kl:mean": 0.0, "active_tokens:sum": 0.0,
    }  # fmt: skip
    assert adapter.flat_grad.abs().max() == 0


def test_the_mean_is_over_positions_with_weight(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rng = np.random.default_rng(0)
    prompt, rest = random_tokens(rng, 5, 4)

    found = compare(tiny, adapter, [continued(prompt, prompt[:0], rest, np.array([0, 2, 0, -1]))])

    [kl] = found.reverse_kl
    assert found.metrics["reverse_kl:mean"] == pytest.approx((kl[1] + kl[3]) / 2, rel=1e-6)
    assert found.metrics["loss:sum"] == pytest.approx(2 * kl[1] - kl[3], rel=1e-5)


@pytest.mark.parametrize("train", [
    {"train_attn": False, "train_mlp": False}, {"train_unembed": False},
])  # fmt: skip
def test_an_adapter_of_the_head_alone_or_without_it_learns(tiny, train):
    adapter = random_adapter(tiny.decoder, seed=1, **train)
    data = group_data()

    compare(tiny, adapter, data)

    grad = in_float64(tiny, adapter, data)[3]
    assert (adapter.flat_grad.double() - grad).norm() <= 1e-5 * grad.norm()


def test_a_larger_model_with_the_same_vocabulary_teaches(tiny, tiny_of):
    teacher = tiny_of("qwen2", layers=1)
    adapter, data = random_adapter(tiny.decoder, seed=1), group_data()

    found = compare(tiny, adapter, data, base=teacher)

    loss, _, _, grad = in_float64(tiny, adapter, data, base=teacher)
    assert found.metrics["loss:sum"] == pytest.approx(loss, rel=1e-5)
    assert (adapter.flat_grad.double() - grad).norm() <= 1e-5 * grad.norm()


def test_a_reference_whose_ids_are_other_texts_is_refused(tiny, tmp_path):
    def served(folder, name):
        return ServedModel(
            name=name, architecture="llama", vocab_size=259, max_context=512, parameters=1,
            dtype="float32", device="cpu", tokenizer_folder=str(folder),
        )  # fmt: skip

    text = (tiny.folder / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace("<|im_end|>", "<|end|>"))

    check_vocabulary(served(tiny.folder, "a"), served(tiny.folder, "b"))
    with pytest.raises(UserError, match="reference 'a' has another vocabulary than 'b'"):
        check_vocabulary(served(tmp_path, "a"), served(tiny.folder, "b"))


def test_layers_computed_again_for_want_of_memory_give_the_same(tiny):
    adapter, weights = random_adapter(tiny.decoder, seed=1), random_adapter(tiny.decoder, seed=2)
    whole = compare(tiny, adapter, group_data(), weights=weights)
    grad = adapter.flat_grad.clone()
    adapter.clear_grad()

    again = compare(tiny, adapter, group_data(), weights=weights, memory=1)

    assert gradients_agree(adapter.flat_grad, grad)
    assert again.metrics == pytest.approx(whole.metrics, rel=1e-5)


def test_a_datum_beyond_the_context_is_refused_before_anything_is_computed(tiny):
    adapter = random_adapter(tiny.decoder, seed=1)
    rest = np.zeros(tiny.decoder.max_context + 2, np.int32)

    with pytest.raises(UserError, match=r"data\[0\].student_input has"):
        compare(tiny, adapter, [continued(rest[:1], rest[:0], rest)])
