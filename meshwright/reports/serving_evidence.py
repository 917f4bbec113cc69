"""Measured servers nearest to a deployment, and its mechanisms that none of them has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.measured.served_errors import ServedError, served_errors
from meshwright.measured.servers import Evidence, evidence
from meshwright.reports.units import percent
from planner.serving.plan import ServingPlan
from planner.serving.preferred import mechanisms
from planner.serving.search import ServingSearch
from simulator.serving.engines import Engine, engines
from simulator.serving.engines.classes import layer_class
from simulator.serving.question.deployment import Pool
from simulator.serving.result import ServingResult

if TYPE_CHECKING:
    from planner.serving.question import ServingQuestion
    from planner.serving.shapes import ReplicaShape

PLAIN = "decoders in one pool without pipeline stages and speculation"
"""Servers whose rows are in fits of engine constants."""

NO_ENCODER = "no measured server of an encoder"


def _place(search: ServingSearch, plan: ServingPlan) -> dict[str, str]:
    """Model, device and engine family of a plan."""
    shape = plan.groups[-1].shape
    family = engines.get(search.question.engine).engine
    return {"model": search.question.model.name, "device": shape.offer.name, "engine": family}


def evidence_words(search: ServingSearch, plan: ServingPlan) -> str:
    """The measured servers nearest to a plan, and what none of them runs."""
    if not search.question.model.decoder_only:
        return NO_ENCODER
    words = _evidence(search, plan).words(_place(search, plan))
    missing = _unmeasured(plan)
    return f"{words}; none has {' and '.join(missing)}" if missing else words


def short_evidence(search: ServingSearch, plan: ServingPlan) -> str:
    """The measured servers nearest to a plan, in a few words."""
    if lacking := mechanisms(plan):
        return f"no measured server has {' and '.join(lacking)}"
    if not search.question.model.decoder_only:
        return NO_ENCODER
    nearest = _evidence(search, plan)
    servers = f"{nearest.rows:,} measured server{'' if nearest.rows == 1 else 's'}"
    return {
        3: f"{servers} of this layout",
        2: f"{servers} of the model, none of this layout",
        1: f"{servers} of other models",
        0: "no measured server of this engine and GPU",
    }[nearest.closeness]


def _unmeasured(plan: ServingPlan) -> list[str]:
    """Mechanisms that no measured server has: `servers.csv` counts servers of one stage."""
    several = len(plan.groups) > 1
    beside = [group.shape for group in plan.groups if group.shape.attention is not None]
    return [f"attention-FFN disaggregation ({shape.describe()})" for shape in beside] + [
        f"pipeline stages ({f'{group.role} ' if several else ''}PP{group.shape.pool.pipeline})"
        for group in plan.groups
        if group.shape.pool.pipeline > 1
    ]


def _evidence(search: ServingSearch, plan: ServingPlan) -> Evidence:
    """Measured servers nearest to a plan; two pools have none of their layout."""
    pool = plan.groups[-1].shape.pool
    return _nearest(_place(search, plan), pool, _plain(len(plan.groups), pool))


def _nearest(place: Mapping[str, str], pool: Pool, plain: bool) -> Evidence:
    """Measured servers nearest to a pool; only plain ones have their layout."""
    layout = {name: str(getattr(pool, name)) for name in ("tensor", "data", "expert")}
    layout["weights"] = pool.stored if plain else ""
    return evidence(place, layout)


def _plain(pools: int, pool: Pool) -> bool:
    """Whether fits of engine constants have servers of this kind."""
    return pools == 1 and pool.speculation is None and pool.pipeline == 1


def plan_errors(search: ServingSearch, plan: ServingPlan) -> dict[str, ServedError]:
    """Errors to expect of a plan's latencies, by metric; none where no fit has servers of its kind."""
    place, pool = _place(search, plan), plan.groups[-1].shape.pool
    if not _plain(len(plan.groups), pool) or not search.question.model.decoder_only:
        return {}
    layers = layer_class(search.question.model)
    return served_errors(_evidence(search, plan), place["engine"], layers, place["device"])


def shape_errors(question: ServingQuestion, shape: ReplicaShape) -> dict[str, ServedError]:
    """Errors to expect of the latencies of replicas that prefill and decode, by metric."""
    if not _plain(1, shape.pool) or not question.model.decoder_only:
        return {}
    family = engines.get(question.engine).engine
    place = {"model": question.model.name, "device": shape.offer.name, "engine": family}
    nearest = _nearest(place, shape.pool, plain=True)
    return served_errors(nearest, family, layer_class(question.model), shape.offer.name)


def run_errors(result: ServingResult) -> dict[str, ServedError]:
    """Errors to expect of a run's latencies, by metric; none where no fit has servers of its kind."""
    setting = result.setting
    last = setting.pools[-1]
    pool, named = last.pool, last.pool.engine
    if not _plain(len(setting.pools), pool) or not setting.model.decoder_only:
        return {}
    family = (named if isinstance(named, Engine) else engines.get(named)).engine
    place = {"model": setting.model.name, "device": last.cluster.device.name, "engine": family}
    nearest = _nearest(place, pool.of(setting.model), plain=True)
    return served_errors(nearest, family, layer_class(setting.model), place["device"])


def within(value: str, error: ServedError | None) -> str:
    """A latency in words with the error beyond which one of ten measured rows lies, where it is known."""
    return value if error is None else f"{value} ± {percent(error.p90, 0)}"


def error_words(errors: Mapping[str, ServedError]) -> dict[str, str]:
    """Errors to expect, for people."""
    if not errors:
        return {"expected error": f"not known: measured servers of the fits are {PLAIN}"}
    return {f"expected error, {name.upper()}": error.words() for name, error in errors.items()}


def error_rows(search: ServingSearch) -> dict[str, str]:
    """Errors to expect of the first plan, for people."""
    return error_words(plan_errors(search, search.plans[0])) if search.plans else {}


def describe_errors(search: ServingSearch, plan: ServingPlan) -> dict[str, Any]:
    """Errors to expect of a plan, with documented keys."""
    return described(plan_errors(search, plan))


def described(errors: Mapping[str, ServedError]) -> dict[str, Any]:
    """Errors by metric, with documented keys."""
    return {
        name: {"median": error.median, "p90": error.p90, "rows": error.rows, "left_out": error.left_out}
        for name, error in errors.items()
    }


def unproven(search: ServingSearch) -> dict[str, str]:
    """A row on mechanisms of the first plan that rest on no measured server."""
    missing = _unmeasured(search.plans[0]) if search.plans else []
    return {"no measured row": f"{' and '.join(missing)} of rank 1: from the model alone"} if missing else {}
