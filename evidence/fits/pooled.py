"""Partial pooling: constants of many groups, each drawn to those of groups that share something with it.

A constant of a group is a mean and a sum of effects, one for each level (all groups, those of one engine,
those of one class of layers, ..., the group's own). Effects are normal with the spread of their level, so two
groups' constants vary together by the levels that they share. Rows move a group from there as far as they
weigh; a group without rows is what the others say of it. Rows of one block (a server) share an error, so that
many rows of one server tell how constants differ within it, and little more than one row of their level.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]

ROUNDS = 5
"""Linear forms of the errors, each around the constants of the one before."""
WEIGHINGS = 5
"""Weighings of rows by their errors, of one linear form."""
STEP = 0.05
"""Change of a constant over its scale in finite differences."""
HALVINGS, MOST_OFF = 4, 1.5
"""Most halvings of a step, which is halved while the loss exceeds ``MOST_OFF`` times the linear form's."""
LEAST_VARIANCE = 1e-6
"""Added to the diagonal of covariances, over a constant's variance."""


class SharedEffect(NamedTuple):
    """What some groups share."""

    name: str
    share: Callable[[Any], Hashable]
    """What a group has in common with others of this level."""
    spread: float | tuple[float, ...]
    """Of this level's effects over a constant's scale: of all constants, or of each."""

    def of(self, constant: int) -> float:
        """The spread of one constant."""
        return self.spread[constant] if isinstance(self.spread, tuple) else self.spread


class Noise(NamedTuple):
    """What errors of rows are taken for granted, arrays of shape (rows,)."""

    independent: Array
    shared: Array
    """Part that all rows of a block have in common."""
    block: NDArray[np.int64]


class LinearErrors(NamedTuple):
    """Errors of a group's rows in linear form."""

    at: Array
    """Constants over their scales, shape (constants,)."""
    errors: Array
    """There, shape (rows,)."""
    slopes: Array
    """Per constant over its scale, shape (rows, constants)."""
    noise: Noise

    def only(self, rows: NDArray[np.bool_]) -> LinearErrors:
        """The same of some rows."""
        independent, shared, block = self.noise
        noise = Noise(independent[rows], shared[rows], block[rows])
        return LinearErrors(self.at, self.errors[rows], self.slopes[rows], noise)

    def weights(self, constants: Array) -> Array:
        """Inverse covariance of the rows' errors, those far off with less weight (pseudo-Huber)."""
        independent, shared, block = self.noise
        off = (self.errors + self.slopes @ (constants - self.at)) / independent
        weight = 1.0 / np.sqrt(1.0 + off**2) / independent**2
        inverse = np.diag(weight)
        for number in np.unique(block):
            members = (block == number) * weight
            common = float(np.max(shared[block == number])) ** 2
            inverse -= np.outer(members, members) * common / (1.0 + common * members.sum())
        return inverse

    def cost(self, off: Array) -> float:
        """Loss of the rows where their errors are ``off``."""
        apart, shared, block = self.noise
        loss = np.hypot(1.0, off / apart) - 1.0
        for number in np.unique(block):
            same = block == number
            loss[same] /= 1.0 + same.sum() * (np.max(shared[same]) / np.max(apart[same])) ** 2
        return float(2.0 * loss.sum())


def towards(
    errors: Callable[[Array], Array], start: Array, best: Array, scale: Array, evidence: LinearErrors
) -> Array:
    """Constants on the way to the solution of a linear form, as far as that form holds there.

    Args:
        errors: of a group's rows with given constants.
        start: constants around which the linear form stands.
        best: constants of its solution.
        scale: of each constant.
        evidence: the linear form.
    """
    if not len(evidence.errors):
        return best
    constants = best
    for _ in range(HALVINGS):
        line = evidence.errors + evidence.slopes @ ((constants - start) / scale)
        if evidence.cost(errors(constants)) <= MOST_OFF * evidence.cost(line) + 1.0:
            break
        constants = 0.5 * (start + constants)
    return constants


def covariance(groups: Sequence[Any], levels: Sequence[SharedEffect], constant: int = 0) -> Array:
    """Covariance of one constant between groups over the square of its scale, shape (groups, groups)."""
    total = LEAST_VARIANCE * np.eye(len(groups))
    for level in levels:
        values = [level.share(group) for group in groups]
        total = total + level.of(constant) ** 2 * np.array([[a == b for b in values] for a in values])
    return total


def linear(errors: Callable[[Array], Array], at: Array, scale: Array, noise: Noise) -> LinearErrors:
    """Errors of a group's rows around some constants, by finite differences.

    Args:
        errors: of the rows with given constants.
        at: constants.
        scale: of each constant.
        noise: of the rows.
    """
    here = errors(at)
    steps = STEP * np.diag(scale)
    slopes = np.array([(errors(at + step) - here) / STEP for step in steps]) if len(here) else np.empty(0)
    return LinearErrors(at / scale, here, slopes.reshape(len(at), len(here)).T, noise)


def solve(
    groups: Sequence[Any],
    levels: Sequence[SharedEffect],
    mean: Array,
    scale: Array,
    floor: Array,
    evidence: Sequence[LinearErrors],
) -> Array:
    """Most likely constants of all groups by the linear forms of their rows' errors.

    Args:
        groups: what `SharedEffect.share` reads.
        levels: effects of which a constant is a sum.
        mean: of each constant before any row is seen.
        scale: of each constant; spreads of levels are shares of it.
        floor: least value of each constant.
        evidence: of each group.

    Returns:
        Constants of shape (groups, constants).
    """
    count = len(mean)
    precision = np.zeros((len(groups) * count,) * 2)
    for constant in range(count):
        precision[constant::count, constant::count] = np.linalg.inv(covariance(groups, levels, constant))
    least, center = floor / scale, np.tile((mean - floor) / scale, len(groups))
    constants = center.reshape(-1, count)
    for _ in range(WEIGHINGS):
        weighed, pull = precision.copy(), precision @ center
        for number, rows in enumerate(evidence):
            if len(rows.errors):
                part = slice(number * count, (number + 1) * count)
                sums = rows.slopes.T @ rows.weights(constants[number] + least)
                weighed[part, part] += sums @ rows.slopes
                pull[part] += sums @ (rows.slopes @ (rows.at - least) - rows.errors)
        root = np.linalg.cholesky(weighed)
        best, _ = nnls(root.T, np.linalg.solve(root, pull), maxiter=100 * pull.size)
        constants = best.reshape(constants.shape)
    return floor + constants * scale
