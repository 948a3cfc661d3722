"""A seed, a position and a stream go in; always the same random numbers come out.

Counter-based: Philox-4x64 with key (seed, kind and stream) and the position in the counter's
second word, so a number depends on nothing but its address: no batch, no order, no history.
Knows nothing of models or tensors on devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_MASK64 = (1 << 64) - 1
_GUMBEL, _UNIFORM = 1, 2


@dataclass(frozen=True, slots=True)
class PosRng:
    """Random numbers addressed by (seed, position, stream).

    A position is the index of the token in the sequence, prompt counted: a text that is cut
    anywhere and continued with the same seed goes on as it would have.

    >>> rng = PosRng(7)
    >>> bool((rng.gumbel(3, 5) == PosRng(7).gumbel(3, 8)[:5]).all())
    True
    """

    seed: int

    def gumbel(self, position: int, num: int, *, stream: int = 0) -> npt.NDArray[np.float64]:
        """Give `num` standard Gumbel numbers; number i does not depend on `num`."""
        uniform: npt.NDArray[np.float64] = self._open_uniform(_GUMBEL, position, stream, num)
        noise: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
        return noise

    def uniform(self, position: int, stream: int = 0) -> float:
        """Give one uniform number in the open interval (0, 1)."""
        return float(self._open_uniform(_UNIFORM, position, stream, 1)[0])

    def _open_uniform(
        self, kind: int, position: int, stream: int, num: int
    ) -> npt.NDArray[np.float64]:
        """Give numbers (2 m + 1) / 2⁵³ with m of 52 bits: never 0, never 1."""
        if position < 0 or not 0 <= stream < 1 << 32:
            raise ValueError(f"position >= 0 and 0 <= stream < 2**32, got {position}, {stream}")
        key = np.array([self.seed & _MASK64, (kind << 32) | stream], dtype=np.uint64)
        counter = np.array([0, position, 0, 0], dtype=np.uint64)
        raw = np.random.Philox(key=key, counter=counter).random_raw(num)
        return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
