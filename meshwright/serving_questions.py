"""Serving questions from flags or arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwmodels.cluster import Cluster, clusters
from hwmodels.errors import InputError, shown
from hwmodels.loading import build, read_mapping
from hwmodels.parsing import exists
from meshwright.numbers import as_numbers
from meshwright.scenarios import scenario_path
from planner.serving.offers import Offer, check_types, of_cluster
from planner.serving.question import FIELDS, ServingQuestion
from simulator.models import models
from simulator.scenario import changed, find
from simulator.serving.engines import engines, nearest
from simulator.serving.question.deployment import Pool
from simulator.serving.scenario import ServingDefinition
from simulator.serving.setting import pools_of

DEFAULT_ENGINE = "vllm-0.19"
REQUESTS = 1000
"""Default number of requests of an event-engine run."""
NUMBERS = ("tensor", "data", "pipeline", "expert", "replicas", "clock_mhz", "power_cap_w")
NUMBERS += ("token_budget", "max_sequences")
MOST = {"token_budget": 2**20, "max_sequences": 2**16, "clock_mhz": 10_000, "power_cap_w": 100_000}
LARGEST = 2**24
"""Highest values of the numbers."""
HELD = ("weights", "kv", "clock_mhz", "power_cap_w")
"""Fields of a scenario's pools that a search holds."""


def serving_question(
    scenario: str | Path | Mapping[str, Any] | None,
    given: Mapping[str, Any],
    fix: Mapping[str, Any],
    limit: Mapping[str, Any],
    where: str = "command line",
    folder: Path | None = None,
) -> ServingQuestion:
    """Build a question from a serving scenario, or from arguments alone.

    Args:
        scenario: file, shipped name or mapping; its deployment gives the engine and the number formats.
        given: arguments of ``mw.deploy``; None means not given.
        fix, limit: fields held or capped, as typed or as values.
        where, folder: name of a mapping in errors, and base of its relative paths.

    Raises:
        InputError: a wrong key or value, an unknown name.
    """
    given = {**given, **as_numbers(given)}
    offers = _offers(given["cluster"], given["gpus"], given["objective"] == "cost")
    most = given["gpus"] if offers else None
    if offers:
        given = {**given, "cluster": offers[0].cluster, "gpus": offers[0].devices}
    data, where, folder = _data(scenario, given, where, folder or Path())
    written = build(ServingDefinition, data, where)
    model = find(models, written.model, folder, f"{where}: model")
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    pools = pools_of(written.deployment, f"{where}: deployment")
    own = [pool for pool in pools if pool.cluster in (None, written.cluster)]
    gpus = written.gpus or sum(pool.devices * pool.replicas for pool in own or pools)
    try:
        cluster = cluster.resized(gpus)
    except InputError as error:
        raise InputError(error.problem, f"{where}: gpus") from None
    stated = {name: getattr(pools[0], name) for name in HELD}
    stated = {name: value for name, value in stated.items() if value is not None}
    held = {name: _value(name, value, "fix") for name, value in fix.items()}
    return ServingQuestion(
        model=model,
        cluster=cluster,
        offers=offers or _offers_of_pools(cluster, pools, folder, f"{where}: deployment"),
        most_devices=most,
        watts=given.get("watts"),
        workload=written.workload,
        engine=_engine(given, written.deployment.engine),
        objective=given["objective"] or _default_objective(given, offers or (of_cluster(cluster),)),
        unasked=given["objective"] is None and given["rate"] is not None,
        fix={**stated, **held},
        limit={name: _value(name, value, "limit") for name, value in limit.items()},
        seed=written.seed,
        folder=folder,
    )


def _default_objective(given: Mapping[str, Any], types: Sequence[Offer]) -> str:
    """A stated rate is to be carried at least cost (without a price: energy); else goodput counts."""
    if given["rate"] is None:
        return "goodput"
    return "cost" if all(offer.usd_per_hour for offer in types) else "energy"


def _offers(written: Any, gpus: int | None, priced: bool) -> tuple[Offer, ...]:
    """GPU types from ``dgx-h100=8,dgx-a100-80gb=16@1.2``; none where one cluster is named alone.

    Raises:
        InputError: another form, a type twice, or no count of devices.
        UnknownNameError: no such device or cluster.
    """
    if not isinstance(written, str) or not any(mark in written for mark in ",=@") or exists(Path(written)):
        return ()
    flag = "--cluster"
    found = []
    for text in written.split(","):
        offer = Offer.parse(text, flag, priced)
        count = offer.available or gpus
        if count is None:
            raise InputError(
                f"write how many devices are available: {text.strip()}=COUNT, or give --gpus", flag
            )
        most = offer.cluster.nodes * offer.cluster.devices_per_node
        if offer.available and offer.available > most:
            raise InputError(f"{offer.cluster.name} has {most:,} devices, asked for {count:,}", flag)
        found.append(offer.resized(min(count, gpus or count, most)))
    check_types(found, flag)
    return tuple(found)


def _offers_of_pools(cluster: Cluster, pools: list[Pool], folder: Path, where: str) -> tuple[Offer, ...]:
    """GPU types of a scenario whose pools name clusters of their own; none where all share one."""
    taken: dict[str, tuple[Cluster, int]] = {}
    for index, pool in enumerate(pools):
        if pool.cluster is not None:
            own = find(clusters, pool.cluster, folder, f"{where}.pools.{index}.cluster")
            count = taken.get(own.device.name, (own, 0))[1] + pool.devices * pool.replicas
            taken[own.device.name] = own, count
    others = [
        of_cluster(own.resized(count)) for name, (own, count) in taken.items() if name != cluster.device.name
    ]
    return (of_cluster(cluster), *others) if others else ()


def _data(
    scenario: str | Path | Mapping[str, Any] | None, given: Mapping[str, Any], where: str, folder: Path
) -> tuple[dict[str, Any], str, Path]:
    """The scenario's mapping with the arguments in it, its name in errors, and its folder."""
    if isinstance(scenario, Mapping):
        data = dict(scenario)
    elif scenario:
        path = scenario_path(str(scenario))
        data, where, folder = dict(read_mapping(path)), str(path), path.parent
    else:
        data = {"workload": {"kind": "serving", "requests": REQUESTS}}
    values = {
        "model": given["model"],
        "cluster": given["cluster"],
        "gpus": given["gpus"],
        "workload.input": _fixed(given["isl"]),
        "workload.output": _fixed(given["osl"]),
        "workload.arrivals": None if given["rate"] is None else {"kind": "poisson", "rate": given["rate"]},
        "workload.slo.ttft": given["ttft"],
        "workload.slo.tpot": given["tpot"],
        "workload.slo.share": given["share"],
    }
    if not scenario and given["rate"] is None:
        # Goodput needs no rate; the event engine sets it.
        values["workload.arrivals"] = {"kind": "burst"}
    for key, value in values.items():
        if value is not None:
            data = changed(data, key, value, where)
    return data, where, folder


def _fixed(tokens: int | None) -> dict[str, Any] | None:
    return None if tokens is None else {"kind": "fixed", "tokens": tokens}


def _engine(given: Mapping[str, Any], written: Any) -> str:
    """Name of the preset: a name of the catalogue, or a family (``vllm``) for its newest.

    Raises:
        UnknownNameError: no such engine.
    """
    asked = given["engine"] or (written if isinstance(written, str) else DEFAULT_ENGINE)
    return asked if asked in engines.names() else nearest(asked).engine.name


def _value(name: str, raw: Any, option: str) -> Any:
    """A value as typed: numbers where the field is one.

    Raises:
        InputError: not a positive whole number.
    """
    if name not in NUMBERS or name not in FIELDS:
        return raw
    text = str(raw)
    most = MOST.get(name, LARGEST)
    if not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise InputError(f"must be a whole number from 1 to {most:,}, found {shown(raw)}", f"{option}.{name}")
    return int(text)
