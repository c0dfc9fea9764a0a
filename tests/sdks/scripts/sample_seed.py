"""A seed gives the same samples again, another one others."""

from tests.sdks.scripting import base_sampler, sample


def drawn(seed: int) -> list[list[int]]:
    return [list(each.tokens) for each in sample(sampler, num_samples=3, seed=seed, stop=[])]


sampler = base_sampler()
assert drawn(7) == drawn(7)
assert drawn(7) != drawn(8)
