"""Of a pass over few rows, only products with enough to do are shared among threads."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mint.torch_engine import frozen
from mint.torch_engine.attention import AttentionPlan
from mint.torch_engine.course import Course
from mint.torch_engine.frozen import FrozenMatrix
from mint.torch_engine.packing import pack
from mint.torch_engine.prefix_tree import prefix_tree
from mint.torch_engine.threads import FEW_ROWS, few_rows, worthwhile

KIB = 2**10


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("rows", "weights", "threads"),
    [
        (48, 576 * 192, 1),  # a tenth of a millisecond
        (48, 576 * 960, 4),  # half a millisecond: all there are
        (1, 576 * 576, 1),  # 1.3 MB to read
        (1, 576 * 960, 2),
        (1, 576 * 49152, 4),
    ],
)
def test_a_product_has_as_many_threads_as_have_enough_to_do(rows, weights, threads):
    assert worthwhile(4, rows, weights, bytes_each=4) == threads


def test_bfloat16_is_half_the_work():
    at_once = [worthwhile(64, 32, 1024 * KIB, each) for each in (4, 2)]

    assert at_once[0] // 2 == at_once[1]


def test_what_is_small_runs_alone_and_the_number_of_threads_comes_back():
    with few_rows(FEW_ROWS):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    with few_rows(FEW_ROWS + 1):
        assert torch.get_num_threads() == 4
    with pytest.raises(RuntimeError), few_rows(1):
        raise RuntimeError("in a round")
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(("most", "found"), [(None, 4), (3, 3), (1, 1), (9, 4)])
def test_the_products_of_a_round_are_shared_by_no_more_than_told(monkeypatch, most, found):
    if not frozen._can_pack(torch.float32):
        pytest.skip("weights are not packed here")
    seen: list[int] = []
    multiply = frozen._multiply
    monkeypatch.setattr(
        frozen, "_multiply", lambda *a: (seen.append(torch.get_num_threads()), multiply(*a))[1]
    )
    large = FrozenMatrix(torch.randn(KIB, KIB), None, keep_plain=False)
    small = FrozenMatrix(torch.randn(8, 8), None, keep_plain=False)
    with few_rows(FEW_ROWS, most):
        large.product(torch.randn(FEW_ROWS, KIB))
        small.product(torch.randn(FEW_ROWS, 8))
        assert torch.get_num_threads() == 1
    large.product(torch.randn(FEW_ROWS, KIB))

    assert seen == [found, 1, 4]


def test_a_product_that_fails_leaves_the_number_of_threads_as_it_was(monkeypatch):
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(frozen, "_multiply", fail)
    matrix = FrozenMatrix(torch.randn(KIB, KIB), None, keep_plain=False)
    if matrix.packed is None:
        pytest.skip("weights are not packed here")
    with pytest.raises(MemoryError), few_rows(FEW_ROWS):
        matrix.product(torch.randn(FEW_ROWS, KIB))
    assert torch.get_num_threads() == 4


class _Watched:
    """An AttentionPlan that notes how many threads it is given."""

    def __init__(self, plan: AttentionPlan) -> None:
        self._plan, self.threads = plan, set[int]()

    def attend(self, *args: Any) -> Tensor:
        self.threads.add(torch.get_num_threads())
        return self._plan.attend(*args)


@pytest.mark.parametrize(
    ("rows", "course", "threads"),
    [(FEW_ROWS, None, 1), (FEW_ROWS + 1, None, 4), (FEW_ROWS, Course(), 4)],
)
def test_a_round_runs_so_and_neither_a_long_prompt_nor_a_pass_that_trains(
    tiny, rows, course, threads
):
    tokens = np.zeros(rows, dtype=np.int32)
    batch = pack(prefix_tree([tokens]), [tokens])
    plan = _Watched(batch.plan)
    with torch.no_grad():
        tiny.decoder.hidden(
            torch.from_numpy(batch.tokens_T), torch.from_numpy(batch.positions_T), plan,
            [(None, rows)], course,
        )  # fmt: skip

    assert plan.threads == {threads}
