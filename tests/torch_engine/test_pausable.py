"""A computation that is left and taken up again."""

import threading

import pytest
import torch

from mint.torch_engine.pausable import Pausable


def test_it_stops_when_its_allowance_is_used_up_and_goes_on_where_it_was():
    seen = []

    def compute(spend):
        for n in range(6):
            seen.append(n)
            spend(10)
        return "done"

    work = Pausable(compute)
    assert work.advance(25) == 30
    assert seen == [0, 1, 2]
    assert not work.done
    assert work.advance(1) == 10
    assert seen == [0, 1, 2, 3]
    assert work.advance(1000) == 20
    assert work.done
    assert work.result() == "done"


def test_it_raises_what_the_computation_raised():
    def compute(spend):
        spend(1)
        raise ValueError("inside")

    work = Pausable(compute)
    work.advance(1)
    work.advance(1)
    with pytest.raises(ValueError, match="inside"):
        work.result()


def test_a_backward_can_be_left_in_the_middle_by_whoever_computes_without_gradient():
    class Between(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, spend):
            ctx.spend = spend
            return x.view_as(x)

        @staticmethod
        def backward(ctx, *grads):
            ctx.spend(1)
            return grads[0] * 2, None

    leaf = torch.ones(3, requires_grad=True)

    def compute(spend):
        Between.apply(Between.apply(leaf, spend), spend).sum().backward()

    work = Pausable(compute)
    with torch.no_grad():
        work.advance(1)
        assert leaf.grad is None
        assert not (leaf * 2).requires_grad
        work.advance(1)
        assert leaf.grad is None
        work.advance(1)
    assert work.done
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [4.0] * 3


def test_what_is_abandoned_ends_and_leaves_no_thread():
    cleaned = []

    def compute(spend):
        try:
            while True:
                spend(1)
        finally:
            cleaned.append(True)

    before = threading.active_count()
    work = Pausable(compute)
    work.advance(5)
    work.abandon()
    work._thread.join(5)
    assert cleaned == [True]
    assert threading.active_count() == before


def test_abandoning_what_never_began_is_nothing():
    Pausable(lambda spend: spend(1)).abandon()
