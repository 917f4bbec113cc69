"""Policies of serving: schedulers, routers, and what else is found in a registry by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from core.errors import named
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table
from simulator.serving.adapters import kernels
from simulator.serving.kv_states import states
from simulator.serving.overlaps import overlaps
from simulator.serving.power_policies import power_policies
from simulator.serving.replica.kv.kinds import kv_kinds
from simulator.serving.replica.schedulers import schedulers
from simulator.serving.routers import routers
from simulator.serving.routers.migration import migrations
from simulator.serving.scalers import scalers
from simulator.serving.starts import starts
from simulator.serving.workload.traces import formats, get_format


def _parameters(policy: Any) -> dict[str, str]:
    return {name: field.description or "" for name, field in policy.model_fields.items()}


def policies(kind: str, registry: Mapping[str, Any]) -> Kind[Any]:
    """The registry of one kind of policy, as a catalogue."""

    def parts(policy: Any) -> list[Table]:
        rows = [
            [name, repr(policy.model_fields[name].default), text]
            for name, text in _parameters(policy).items()
        ]
        return [table(("parameter", "default", "meaning"), rows, left=3)] if rows else []

    return Kind(
        names=lambda: sorted(registry),
        get=lambda name: named(kind, name, registry),
        brief=lambda policy: {"name": policy.name, "rule": policy.rule, "source": policy.source},
        more=lambda policy: {"parameters": _parameters(policy)},
        cells={
            kind: lambda policy: policy.name,
            "rule": lambda policy: policy.rule,
            "source": lambda policy: policy.source,
        },
        about=lambda policy: {"rule": policy.rule, "source": policy.source},
        parts=parts,
        text_columns=3,
    )


SCHEDULERS = policies("scheduler", schedulers)
ROUTERS = policies("router", routers)
MIGRATIONS = policies("migration", migrations)
KV = policies("kv", kv_kinds)
SCALERS = policies("scaler", scalers)
ADAPTERS = policies("adapter kernel", kernels)
OVERLAPS = policies("overlap", overlaps)
STATES = policies("state of KV", states)
STARTS = policies("source of weights", starts)
POWER_POLICIES = policies("power policy", power_policies)
TRACES = Kind(
    names=lambda: sorted(formats),
    get=get_format,
    brief=lambda form: {
        "name": form.name,
        "columns": form.columns,
        "source": form.source,
        "timed": form.timed,
    },
    more=lambda form: {"prefix_tokens": form.prefix_tokens},
    cells={
        "trace": lambda form: form.name,
        "columns": lambda form: form.columns,
        "source": lambda form: form.source,
    },
    about=lambda form: {"columns": form.columns, "source": form.source},
    text_columns=3,
)
