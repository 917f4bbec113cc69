"""Sets of modules that selective recomputation repeats, with their times."""

from __future__ import annotations

import numpy as np

from core.records import record
from planner.training.lever_times import Table
from simulator.levers import modules_code


@record()
class ModuleSets:
    """Sets of recomputed modules of some shapes, each with its fastest combination.

    ``forward`` and ``backward`` have shape (sets, kinds, shapes), seconds. ``runs`` are the sets that a
    combination allows, shape (sets,), ``codes`` their numbers in plans, ``weights`` the layers of each kind.
    Sets are in the order of their size.
    """

    combination: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    runs: np.ndarray
    codes: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(
        cls, table: Table, shapes: np.ndarray, overlaps: bool, among: np.ndarray | bool = True
    ) -> ModuleSets:
        """Choose the fastest combination of each set, for plans that may overlap the exchange or not.

        Args:
            table: of the plans.
            shapes: the shapes among those of the table.
            overlaps: whether the plans may overlap the exchange with experts.
            among: which combinations may be chosen, shape (combinations,).
        """
        space, sets = table.space, table.space.modules
        in_context = space.in_context(overlaps) & among
        allowed = np.array([space.allowed(modules) & in_context for modules in sets])
        weights, (priced, places) = table.weights, np.unique(table.origin[shapes], return_inverse=True)
        ahead, behind = table.forward[..., shapes], table.backward[..., shapes]
        alone = np.einsum("k,ckn->cn", weights, ahead + behind)
        least = np.full((len(sets), len(shapes)), np.inf, dtype=np.float32)
        best = np.zeros(least.shape, dtype=np.int64)
        for number in np.flatnonzero(allowed.any(axis=0)).tolist():
            again = np.einsum("k,skn->sn", weights, table.modules(number, priced))
            seconds = (alone[number] + again[:, places]).astype(np.float32)
            faster = (seconds < least) & allowed[:, number, np.newaxis]
            np.copyto(least, seconds, where=faster)
            np.copyto(best, number, where=faster)
        runs = np.any(allowed, axis=1)
        forward, backward = np.zeros((2, len(sets), len(shapes), len(weights)))
        for number in np.flatnonzero(np.bincount(best[runs].ravel())).tolist():
            row, shape = np.nonzero((best == number) & runs[:, np.newaxis])
            forward[row, shape] = ahead[number].T[shape]
            backward[row, shape] = (
                behind[number].T[shape] + table.modules(number, priced)[row, :, places[shape]]
            )
        forward, backward = np.moveaxis(forward, 2, 1), np.moveaxis(backward, 2, 1)
        codes = np.array([modules_code(modules) for modules in sets], dtype=np.int64)
        return cls(best, forward, backward, runs, codes, weights)

    def undominated(self, fits: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Sets of each plan that fit and that no other fitting set beats in all times, shape (sets, plans).

        Args:
            fits: which sets fit each plan, shape (sets, plans).
            places: the shape of each plan.
        """
        both = np.concatenate([self.forward, self.backward], axis=1).astype(np.float32)
        varying = np.flatnonzero(np.any(both != both[:1], axis=(0, 2)))
        costs = np.where(fits[:, np.newaxis], both[:, varying][:, :, places], np.inf)
        total = np.einsum("k,skn->sn", self.weights, self.forward + self.backward)[:, places]
        first = np.argmin(np.where(fits, total.astype(np.float32), np.inf), axis=0)
        least = np.take_along_axis(costs, first[np.newaxis, np.newaxis], axis=0)
        keep = fits & np.any(costs < least, axis=1)
        if len(varying) == 2:
            order = np.lexsort((costs[:, 1], costs[:, 0]), axis=0)
            other = np.take_along_axis(costs[:, 1], order, axis=0)
            before = np.minimum.accumulate(other, axis=0)
            strictly = np.vstack([np.ones((1, other.shape[1]), bool), other[1:] < before[:-1]])
            unbeaten = np.zeros_like(keep)
            np.put_along_axis(unbeaten, order, strictly, axis=0)
            keep &= unbeaten
        np.put_along_axis(keep, first[np.newaxis], np.any(fits, axis=0, keepdims=True), axis=0)
        return keep
