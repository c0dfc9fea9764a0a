"""The arithmetic of a step, counted by hand on sizes that fit a page."""

import pytest
from benchmarks.roofline import (
    Sizes,
    measure_peak,
    rl_step_flops,
    sampling_flops,
    training_flops,
)

SIZES = Sizes(layers=2, width=4, heads=2, kv_heads=1, head_dim=2, mlp=8, vocabulary=10, rank=1)
BASE = 2 * 2 * (4 * 4 + 4 * 2 + 4 * 2 + 4 * 4 + 3 * 4 * 8)  # q, k, v, o, then the MLP's three
LORA = 2 * 2 * (8 + 6 + 6 + 8 + 3 * 12)
KEY = 4 * 2 * 2 * 2
HEAD = 2 * 4 * 10


def test_a_token_costs_its_linears_forward():
    assert SIZES.base_flops() == BASE
    assert SIZES.lora_flops() == LORA
    assert SIZES.attention_flops(1) == KEY
    assert SIZES.head_flops() == HEAD


def test_sampling_reads_a_prompt_once_and_decodes_all_tokens_but_the_last():
    # A prompt of 3 with 2 samples of 4: 3 tokens see 1 + 2 + 3 keys, 3 more of each see 4, 5, 6.
    tokens, keys, heads = 3 + 2 * 3, 6 + 2 * (4 + 5 + 6), 1 + 2 * 3

    assert sampling_flops(SIZES, [3], group=2, drawn=4) == (
        tokens * (BASE + LORA) + keys * KEY + heads * HEAD
    )


def test_training_goes_back_through_inputs_only_and_scores_the_prompt_without_gradient():
    tokens, keys = 3 + 2 * 3, 6 + 2 * (4 + 5 + 6)
    graded, scored = 1 + 2 * 3, 2

    assert training_flops(SIZES, [3], group=2, answer=4) == (
        tokens * (2 * BASE + 3 * LORA) + 3 * keys * KEY + (2 * graded + scored) * HEAD
    )


def test_a_step_is_both_and_prompts_add_up():
    both = rl_step_flops(SIZES, [3, 5], 2, 4)

    assert both == sum(
        part(SIZES, [n], 2, 4) for part in (sampling_flops, training_flops) for n in (3, 5)
    )


def test_the_short_step_of_the_embedded_model_is_as_the_design_has_it():
    embedded = Sizes(
        layers=30, width=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocabulary=49152, rank=16
    )

    flops = rl_step_flops(embedded, [24] * 8, 6, 16)

    assert flops / 110e9 == pytest.approx(7, rel=0.1)  # "about 7" seconds at 110 GFLOP/s


def test_the_peak_is_a_speed_a_processor_can_have():
    peak = measure_peak(seconds=0.01)

    assert 1e9 < peak.per_cpu_s < 1e13
    assert peak.per_cpu_s >= 1e9 * max(peak.plain_gflops, peak.packed_gflops or 0) * 0.999
