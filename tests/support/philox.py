"""Dropout by counter in NumPy: the masks that the engine's operations of training compute."""

from typing import Any

import numpy as np


def philox(counter: Any, key: Any) -> list[Any]:
    """Philox4x32-10: the four words of blocks. Words of the counter and the key are numbers or arrays."""
    words: list[Any] = [np.asarray(word, np.int64).astype(np.uint64) % 2**32 for word in (*counter, *key)]
    a, b, c, d, seed, place = words
    for _ in range(10):
        x, y = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (y >> 32) ^ b ^ seed, y % 2**32, (x >> 32) ^ d ^ place, x % 2**32
        seed, place = (seed + 0x9E3779B9) % 2**32, (place + 0xBB67AE85) % 2**32
    return [a, b, c, d]


def factors(
    seed: int, place: int, update: int, pairs: Any, positions: Any, size: int, rate: float, first_block: int = 0
) -> Any:
    """The factor of each unit of rows (N,), (N, size): 0, or what keeps the expectation."""
    block, position, pair = np.arange(-(-size // 128) * 16), np.asarray(positions)[:, None], np.asarray(pairs)[:, None]
    words = np.stack(philox((first_block + block, position, pair, update), (seed, place)))
    draws = np.stack((words & 0xFFFF, words >> 16), 1).reshape(4, 2, len(pair), -1, 16)  # word, half, row, group, block
    dropped = min(round(rate * 65_536), 65_535)
    kept = draws.transpose(2, 3, 0, 1, 4).reshape(len(pair), -1)[:, :size] >= dropped
    return np.where(kept, 65_536 / (65_536 - dropped), 0.0)
