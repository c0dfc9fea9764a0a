"""Random numbers that depend on (seed, sample, position) and on nothing else.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195): each sequence has a 64-bit
state, and its n-th number is a hash of state + n * gamma. So a sequence draws the same numbers
alone and in any batch, and a number can be drawn again without drawing those before it.
"""

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


def stream(seed: int, sample: int) -> np.uint64:
    """The state of one sequence: sample number `sample` of a request with this seed."""
    start = np.array([seed % 2**64, sample % 2**64], dtype=np.uint64)
    return _mixed(_mixed(start[:1] + _GAMMA) ^ _mixed(start[1:] + _M1))[0]


def uniforms(streams_N: NDArray[np.uint64], positions_N: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number of [0, 1) per sequence, at its position, with 53 random bits."""
    bits_N = _mixed(streams_N + (positions_N + np.uint64(1)) * _GAMMA)
    return (bits_N >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: every bit of the input reaches every bit of the output."""
    z = (z ^ (z >> np.uint64(30))) * _M1
    z = (z ^ (z >> np.uint64(27))) * _M2
    return z ^ (z >> np.uint64(31))
