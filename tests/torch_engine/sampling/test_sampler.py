import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mint.core.sampling import SamplingParams
from mint.torch_engine.sampler import Drawn, Draws, draw
from mint.torch_engine.uniforms import stream, uniforms


def draw_many(logits_V: Tensor, params: SamplingParams, n: int = 20_000) -> Drawn:
    """n draws of one distribution, each with the next number of one stream."""
    numbers = uniforms(np.full(n, stream(1, 0)), np.arange(n, dtype=np.uint64))
    draws = Draws.of([params] * n, numbers, torch.device("cpu"))
    return draw(logits_V.repeat(n, 1), draws)


def draw_each(logits_NV: Tensor, params: list[SamplingParams], uniform: float, topk: int = 0):
    numbers = np.full(len(params), uniform)
    return draw(logits_NV.clone(), Draws.of(params, numbers, torch.device("cpu")), topk)


def assert_drawn_from(drawn: Drawn, p_V: Tensor):
    """Pearson's chi-square over the tokens that can come; the others never came."""
    n, support = len(drawn.tokens_N), p_V > 0
    seen_V = torch.bincount(drawn.tokens_N, minlength=len(p_V))
    assert seen_V[~support].sum() == 0
    expected = p_V[support] * n
    statistic = ((seen_V[support] - expected) ** 2 / expected).sum().item()
    freedom = int(support.sum()) - 1
    # Mean and variance of chi-square are f and 2 f: five deviations; the stream is fixed.
    assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 1e-9


LOGITS_V = torch.linspace(-2, 2, 40)[torch.randperm(40, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_tokens_come_as_often_as_their_probability_says(temperature: float):
    drawn = draw_many(LOGITS_V, SamplingParams(temperature=temperature))

    assert_drawn_from(drawn, (LOGITS_V.double() / temperature).softmax(-1))


def test_a_vocabulary_of_several_uneven_blocks_is_drawn_rightly():
    logits_V = torch.randn(700, generator=torch.Generator().manual_seed(0))

    assert_drawn_from(draw_many(logits_V, SamplingParams()), logits_V.double().softmax(-1))


def test_top_k_keeps_the_k_most_likely():
    p_V = LOGITS_V.double().softmax(-1)
    p_V[LOGITS_V.topk(5).values[-1] > LOGITS_V] = 0

    assert_drawn_from(draw_many(LOGITS_V, SamplingParams(top_k=5)), p_V / p_V.sum())


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    p_V = LOGITS_V.double().softmax(-1)
    order = p_V.argsort(descending=True)
    kept = int((p_V[order].cumsum(-1) < 0.6).sum()) + 1
    p_V[order[kept:]] = 0

    assert_drawn_from(draw_many(LOGITS_V, SamplingParams(top_p=0.6)), p_V / p_V.sum())


def test_top_p_takes_its_share_of_what_top_k_left():
    logits_V = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()  # top_k=2 leaves 4/7 and 3/7

    only_first = draw_many(logits_V, SamplingParams(top_k=2, top_p=0.5))
    both = draw_many(logits_V, SamplingParams(top_k=2, top_p=0.6))

    assert set(only_first.tokens_N.tolist()) == {0}
    assert_drawn_from(both, torch.tensor([4 / 7, 3 / 7, 0, 0], dtype=torch.float64))


def test_a_top_p_set_larger_than_the_first_look_is_found_whole():
    logits_V = torch.zeros(3000)  # 64 and 1024 best of 3000 hold too little of 0.9
    drawn = draw_many(logits_V, SamplingParams(top_p=0.9), n=2000)

    assert len(set(drawn.tokens_N.tolist())) > 1024
    kept = draw_each(logits_V[None], [SamplingParams(top_p=0.9)], 1 - 2**-53)
    assert kept.finite_N.item()


def test_logprobs_are_those_of_the_whole_distribution_whatever_is_cut():
    params = [
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=0.5, top_k=2),
        SamplingParams(temperature=0.5, top_p=0.1),
        SamplingParams(temperature=0.0),
    ]
    drawn = draw_each(LOGITS_V.repeat(4, 1), params, 0.3)

    for row, temperature in enumerate((0.5, 0.5, 0.5, 1.0)):
        logp_V = (LOGITS_V.double() / temperature).log_softmax(-1)
        assert drawn.logprobs_N[row].item() == pytest.approx(
            logp_V[drawn.tokens_N[row]].item(), abs=1e-5
        )
    assert drawn.tokens_N[3] == LOGITS_V.argmax()


def test_rows_with_unlike_settings_are_drawn_as_if_alone():
    logits_NV = torch.randn(6, 1500, generator=torch.Generator().manual_seed(2))
    params = [
        SamplingParams(),
        SamplingParams(temperature=0),
        SamplingParams(top_k=3),
        SamplingParams(top_k=200, top_p=0.9),
        SamplingParams(top_p=0.99, temperature=2.0),
        SamplingParams(top_k=5000),
    ]

    together = draw_each(logits_NV, params, 0.77)
    alone = [draw_each(logits_NV[i : i + 1], params[i : i + 1], 0.77) for i in range(6)]

    assert together.tokens_N.tolist() == [d.tokens_N.item() for d in alone]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_k=3),
        SamplingParams(top_p=0.999),
        SamplingParams(top_k=0),
    ],
)
def test_a_token_of_probability_zero_never_comes(uniform: float, params: SamplingParams):
    logits_V = torch.full((600,), -math.inf)
    logits_V[257] = logits_V[300] = 0.0

    drawn = draw_each(logits_V[None], [params], uniform)

    assert drawn.tokens_N.item() in (257, 300)
    assert drawn.logprobs_N.item() == pytest.approx(math.log(0.5))


def test_the_largest_number_of_all_still_means_a_token_that_can_come():
    """Float32 sums of blocks and float64 sums within them differ in their last bits, so some of
    these targets lie beyond the last token of their block."""
    logits_NV = torch.randn(300, 600, generator=torch.Generator().manual_seed(0)) * 3
    logits_NV[:, 200:256] = logits_NV[:, 450:512] = logits_NV[:, 560:] = -math.inf

    drawn = draw_each(logits_NV, [SamplingParams()] * 300, 1 - 2**-53)

    assert drawn.logprobs_N.isfinite().all()
    assert (drawn.tokens_N < 560).all()


def test_k_of_1_takes_one_of_two_equal_tokens_and_keeps_their_true_logprob():
    drawn = draw_many(torch.zeros(2), SamplingParams(top_k=1), n=100)

    assert len(set(drawn.tokens_N.tolist())) == 1
    assert drawn.logprobs_N[0].item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("temperature", [1e-6, 1e-38, 1e30])
def test_extreme_temperatures_stay_finite(temperature: float):
    drawn = draw_many(LOGITS_V, SamplingParams(temperature=temperature), n=50)

    assert drawn.finite_N.all()
    if temperature < 1:
        assert set(drawn.tokens_N.tolist()) == {int(LOGITS_V.argmax())}
        assert drawn.logprobs_N[0].item() == pytest.approx(0.0, abs=1e-6)
    else:
        assert drawn.logprobs_N[0].item() == pytest.approx(-math.log(40), abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_p=0.5)]
)
def test_a_row_that_is_not_finite_is_named_and_its_neighbour_is_not(
    bad: float, params: SamplingParams
):
    logits_NV = LOGITS_V.repeat(2, 1)
    logits_NV[0, 7] = bad

    drawn = draw_each(logits_NV, [params, params], 0.4)
    alone = draw_each(LOGITS_V[None], [params], 0.4)

    assert drawn.finite_N.tolist() == [False, True]
    assert drawn.tokens_N[1] == alone.tokens_N[0]


def test_the_best_tokens_come_with_the_logprobs_of_the_scaled_distribution():
    drawn = draw_each(LOGITS_V[None], [SamplingParams(temperature=2.0)], 0.1, topk=3)

    expected = (LOGITS_V / 2).log_softmax(-1).topk(3)
    assert drawn.topk is not None
    assert drawn.topk[0].tolist() == [expected.indices.tolist()]
    torch.testing.assert_close(drawn.topk[1][0], expected.values)
