"""Seconds of a group of context-parallel ranks by its degree."""

from __future__ import annotations

import numpy as np

from core.records import record
from simulator.packing.base import Array


@record()
class DegreeCosts:
    """Seconds of a micro batch of one group: ``fixed + token x tokens + square x squared lengths``.

    FlexSP fits the same three terms for each degree (Wang et al. 2025, section 4.1.1).

    Attributes:
        degrees: context-parallel ranks of a group, ascending, shape (degrees,).
        fixed, token, square: s, s a token, s a squared token, shape (degrees,).
        room: tokens that one rank holds.
    """

    degrees: Array
    fixed: Array
    token: Array
    square: Array
    room: float

    def seconds(self, tokens: Array, squares: Array) -> Array:
        """Seconds of groups of each degree, shape (..., degrees), from tokens and squared lengths (...)."""
        tokens, squares = np.asarray(tokens)[..., np.newaxis], np.asarray(squares)[..., np.newaxis]
        return self.fixed + self.token * tokens + self.square * squares
