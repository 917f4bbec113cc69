"""Speed of each group of a mixed cluster: micro batches of the whole model on its own devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from hwmodels.mixed import NodeGroup
from simulator.placement import MixedSetting
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import step_time

RECOMPUTES = "none", "selective", "full"
REPEATED = 32
"""Micro batches over which the speed of a group spreads what happens once a step."""


class Speeds:
    """Seconds of a micro batch of the whole model on one tensor-parallel group of each kind."""

    def __init__(self, mixed: MixedSetting) -> None:
        self.mixed = mixed
        self._steps = cache(self._predicted)

    def __call__(self, group: NodeGroup, tensor: int, micro_batch: int, recompute: str) -> float:
        """Seconds of a micro batch with its share of what happens once in ``REPEATED`` of them."""
        return self._steps(group.name, tensor, micro_batch, REPEATED)[recompute] / REPEATED

    def alone(self, group: NodeGroup, tensor: int, micro_batch: int, recompute: str) -> float:
        """Seconds that one more micro batch takes: nothing that happens once a step."""
        longer, shorter = (
            self._steps(group.name, tensor, micro_batch, count)[recompute]
            for count in (2 * REPEATED, REPEATED)
        )
        return (longer - shorter) / REPEATED

    def _predicted(self, name: str, tensor: int, micro_batch: int, count: int) -> Mapping[str, float]:
        """Seconds of a step of ``count`` micro batches, by recomputation."""
        mixed, group = self.mixed, self.mixed.cluster.group(name)
        training = mixed.training.model_copy(update={"global_batch": count * micro_batch})
        setting = Setting(mixed.model, group.uniform(tensor), training, mixed.framework, allow=mixed.allow)
        plans = [
            Plan(
                tensor=tensor,
                micro_batch=micro_batch,
                recompute=recompute,  # type: ignore[arg-type]
                sequence_parallel=tensor > 1,
            )
            for recompute in RECOMPUTES
        ]
        times = step_time(setting, Plans.of(plans))
        return {recompute: float(time) for recompute, time in zip(RECOMPUTES, times, strict=True)}


def least_seconds(
    speeds: Speeds, groups: Sequence[NodeGroup], shapes: Iterable[tuple[int, int, str]], batch: int
) -> float:
    """Seconds below which no placement trains a batch: every device busy at its group's best speed.

    Args:
        speeds: of the question.
        groups: the groups that may work.
        shapes: tensor ranks, micro batch and recomputation that plans may have.
        batch: sequences of a step.
    """
    tried = list(shapes)
    sequences_per_s = sum(
        group.devices
        * max(size / (tensor * speeds.alone(group, tensor, size, again)) for tensor, size, again in tried)
        for group in groups
    )
    return batch / sequences_per_s
