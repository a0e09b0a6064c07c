"""Random choice that depends on nothing but its key.

The draw is the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014): the largest of log-probability plus Gumbel noise
is distributed as the softmax. The noise is a hash of (key, position, token id), so it does not depend on the batch,
on a slot, on other tokens being filtered, or on how often a step was repeated.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_U64 = 0xFFFFFFFFFFFFFFFF
_NEAR, _LUCK = 12.0, 8.0
"""Noise lies above -3.7, so what is _NEAR below the best and has less noise than _LUCK cannot win."""
_LUCKY = np.uint64(int(exp(-exp(-_LUCK)) * 2.0**64))
"""Bits from where noise may be _LUCK or more."""


def draw(scores: NDArray[np.float32], temperature: float, key: int, position: int) -> int:
    """The id with the largest of score [vocabulary] / temperature (above 0) plus noise. Those at -inf are out.

    Noise is made only of what can win: what is near the best, and what has rare luck."""
    top = float(scores.max())
    lowest = float(np.finfo(np.float32).min)
    least = np.nextafter(np.float32(max(top - (_NEAR + 0.01) * temperature, lowest)), np.float32(-np.inf))
    possible = scores >= least
    possible |= _bits(key, position, _spread(len(scores))) >= _LUCKY
    ids = np.flatnonzero(possible)
    with np.errstate(over="ignore"):
        values = (scores[ids].astype(np.float64) - top) / temperature
    return int(ids[np.argmax(values + gumbel(key, position, ids))])


def gumbel(key: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for token ids [n] at one position of one generation; see the module docstring."""
    bits = _bits(key, position, ids.astype(np.uint64) * np.uint64(_GOLDEN))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


@lru_cache(4)
def _spread(size: int) -> NDArray[np.uint64]:
    """Every id below `size` times a constant, modulo 2**64. Not to be changed."""
    return np.arange(size, dtype=np.uint64) * np.uint64(_GOLDEN)


def _bits(key: int, position: int, spread: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits per id; spread: ids times _GOLDEN."""
    base = _mix_int(_mix_int(key & _U64) ^ ((position + 1) * _GOLDEN & _U64))
    with np.errstate(over="ignore"):
        return _mix(np.uint64(base) + spread)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), in place: every input bit changes about half of the output
    bits."""
    shifted = value >> np.uint64(30)
    value ^= shifted
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= np.right_shift(value, np.uint64(27), out=shifted)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= np.right_shift(value, np.uint64(31), out=shifted)
    return value


def _mix_int(value: int) -> int:
    """`_mix` for one number."""
    value = (value + _GOLDEN) & _U64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _U64
    return value ^ (value >> 31)
