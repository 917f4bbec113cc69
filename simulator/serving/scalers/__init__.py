"""Scalers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simulator.serving.question.policies import make_policy
from simulator.serving.scalers.base import Scaler
from simulator.serving.scalers.by_targets import ByTargets
from simulator.serving.scalers.dynamo_load import DynamoLoadPlanner
from simulator.serving.scalers.dynamo_sla import DynamoSlaPlanner
from simulator.serving.scalers.fixed import FixedReplicas
from simulator.serving.scalers.reactive import Reactive
from simulator.serving.scalers.scheduled import Scheduled
from simulator.serving.scalers.wva import WorkloadVariantAutoscaler

scalers: Mapping[str, type[Scaler]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            *(FixedReplicas, Reactive, Scheduled, ByTargets),
            *(DynamoLoadPlanner, DynamoSlaPlanner, WorkloadVariantAutoscaler),
        )
    }
)


def make_scaler(name: str, options: Mapping[str, Any], where: str = "") -> Scaler:
    """The scaler of that name with its parameters; raises as `make_policy`."""
    return make_policy("scaler", scalers, name, options, where)


__all__ = ["Scaler", "make_scaler", "scalers"]
