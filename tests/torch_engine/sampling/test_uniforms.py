import numpy as np

from mint.torch_engine.uniforms import stream, uniforms


def numbers(seed: int, sample: int, n: int) -> np.ndarray:
    return uniforms(np.full(n, stream(seed, sample)), np.arange(n, dtype=np.uint64))


def test_a_number_depends_on_seed_sample_and_position_alone():
    streams = np.array([stream(1, 0), stream(1, 1), stream(2, 0)])
    positions = np.array([4, 0, 9], dtype=np.uint64)

    together = uniforms(streams, positions)

    assert together.tolist() == [
        numbers(1, 0, 5)[4], numbers(1, 1, 1)[0], numbers(2, 0, 10)[9],
    ]  # fmt: skip


def test_the_numbers_of_a_stream_fill_zero_to_one_evenly():
    found = numbers(0, 0, 100_000)

    assert found.min() >= 0
    assert found.max() < 1
    counts, _ = np.histogram(found, bins=100, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 5 * np.sqrt(2 * 99)


def test_neighbouring_seeds_samples_and_positions_have_nothing_in_common():
    base = numbers(5, 3, 20_000)

    for other in (numbers(6, 3, 20_000), numbers(5, 4, 20_000), numbers(3, 5, 20_000)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.03
    assert abs(np.corrcoef(base[:-1], base[1:])[0, 1]) < 0.03


def test_a_seed_of_any_size_or_sign_is_taken():
    assert len({int(stream(seed, 0)) for seed in (0, -1, 1, 2**63, 2**64 - 2)}) == 5
    assert stream(2**64 + 7, 0) == stream(7, 0)
