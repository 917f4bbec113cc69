"""Serving questions from flags or arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import InputError, UnknownNameError, located, shown
from core.loading import build
from core.parsing import exists
from hwmodels.cluster import Cluster, clusters
from meshwright.questions.numbers import as_numbers
from meshwright.questions.policies import kept_policies
from meshwright.questions.scenarios import read_keys, scenario_path
from meshwright.questions.training import from_here
from meshwright.questions.uses import with_use
from planner.serving.attention_sides import BATCHES, POOL, RATIO, read_ratio
from planner.serving.engine_options import check_switches
from planner.serving.offers import Offer, check_types, of_cluster
from planner.serving.question import APART, FIELDS, ServingQuestion
from simulator.models import models
from simulator.models.towers.pictures import hearing
from simulator.scenario import changed, find
from simulator.serving.checks import check_output, part_asked
from simulator.serving.encoders import check_encoder
from simulator.serving.engines import RELEASE, engines, nearest
from simulator.serving.kv_states.attention_ffn import LEAST_IN_FLIGHT, MOST_IN_FLIGHT
from simulator.serving.question.deployment import Pool, pools_of
from simulator.serving.question.speculation import (
    DRAFT_MODEL,
    KINDS,
    Speculation,
    check_heads,
    read_speculation,
)
from simulator.serving.scenario import ServingDefinition
from simulator.serving.workload.programs import SPAN
from simulator.serving.workload.traces.detection import detect_format
from simulator.site import ServerSite, check_server

DEFAULT_ENGINE = "vllm-0.19"
REQUESTS = 1000
"""Default number of requests of an event-engine run."""
NUMBERS = ("tensor", "data", "pipeline", "expert", "replicas", "clock_mhz", "power_cap_w")
NUMBERS += ("token_budget", "max_sequences", "largest_graph", BATCHES)
MOST = {"token_budget": 2**20, "max_sequences": 2**16, "clock_mhz": 10_000, "power_cap_w": 100_000}
MOST |= {"largest_graph": 2**16, BATCHES: MOST_IN_FLIGHT}
LEAST = {BATCHES: LEAST_IN_FLIGHT}
MOST_CLIENTS = 2**20
POOLS = (POOL,)
"""Roles of pools that a search tries when asked."""
LARGEST = 2**24
"""Highest values of the numbers."""
HELD = ("weights", "kv", "exchange", "largest_graph", "clock_mhz", "power_cap_w")
"""Fields of a scenario's pools that a search holds."""


def serving_question(
    scenario: str | Path | Mapping[str, Any] | None,
    values: Mapping[str, Any],
    fix: Mapping[str, Any],
    limit: Mapping[str, Any],
    where: str = "command line",
    folder: Path | None = None,
) -> ServingQuestion:
    """Build a question from a serving scenario, or from arguments alone.

    Args:
        scenario: file, shipped name or mapping; its deployment gives the engine and the number formats.
        values: arguments of ``mw.deploy``; None means not given.
        fix, limit: fields held or capped, as typed or as values.
        where, folder: name of a mapping in errors, and base of its relative paths.

    Raises:
        InputError: a wrong key or value, an unknown name.
    """
    values = with_use(values)
    values = {**values, **as_numbers(values)}
    _check_clients(values)
    offers = _offers(values["cluster"], values["gpus"], values["objective"] == "cost")
    devices = values["gpus"] if offers else None
    if offers:
        values = {**values, "cluster": offers[0].cluster, "gpus": offers[0].devices}
    data, where, folder = _data(scenario, values, where, folder or Path())
    written = build(ServingDefinition, data, where)
    model = find(models, written.model, folder, f"{where}: model")
    if written.workload.audio:
        model = hearing(model, f"{where}: workload.audio")
    if (written.workload.images or written.workload.audio) and model.tower is not None:
        # The answer holds what the note says is left out.
        model = model.model_copy(update={"left_out": ""})
    model = part_asked(model, written.workload.output)
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    pools = pools_of(written.deployment, f"{where}: deployment")
    here = [pool for pool in pools if pool.cluster in (None, written.cluster)]
    gpus = written.gpus or sum(pool.devices * pool.replicas for pool in here or pools)
    with located(f"{where}: gpus"):
        cluster = cluster.resized(gpus)
    stated = {name: value for name in HELD if (value := getattr(pools[0], name)) is not None}
    fixed = {name: _value(name, value, "fix") for name, value in fix.items()}
    drafts = pools[0].speculation
    if drafts is not None and drafts.kind != DRAFT_MODEL:
        stated["speculation"] = drafts
    site, engine = written.at_site(where, folder).site, _engine(values, written.deployment.engine)
    if site is not None:
        _check_site(site, [offer.cluster for offer in offers] or [cluster], engine, f"{where}: site")
    if isinstance(drafts := fixed.get("speculation"), Speculation):
        check_heads(drafts, model.mtp_layers, model.name, "--speculate")
    question = ServingQuestion(
        model=model,
        cluster=cluster,
        offers=offers or _offers_of_pools(cluster, pools, folder, f"{where}: deployment"),
        most_devices=devices,
        watts=values.get("watts"),
        concurrency=values.get("concurrency"),
        workload=written.workload,
        engine=engine,
        objective=values["objective"] or _default_objective(values, offers or (of_cluster(cluster),)),
        unasked=values["objective"] is None and _states_a_load(values),
        fix={**stated, **fixed},
        limit={name: _value(name, value, "limit") for name, value in limit.items()},
        seed=written.seed,
        folder=folder,
        policies=kept_policies(written.deployment),
        site=site,
        pools=_pools(values.get("pools"), fix),
    )
    check_output(model, question.output, f"{where}: workload.output")
    check_encoder(model, question.pool(), engines.get(engine), f"{where}: deployment")
    check_switches(question)
    return question


def _check_site(site: ServerSite, clusters: Sequence[Cluster], engine: str, where: str) -> None:
    """Refuse a site whose device no GPU type has, or of another engine.

    Raises:
        InputError: the reason.
    """
    devices = [cluster.device.name for cluster in clusters]
    check_server(site, site.device if site.device in devices else devices[0], engine, where)


def _pools(written: Any, fix: Mapping[str, Any]) -> tuple[str, ...]:
    """Roles of pools to try beside those that serve, of ``attention``.

    Raises:
        InputError: fields of attention pools are held, and none is tried.
        UnknownNameError: another role.
    """
    names = written.split(",") if isinstance(written, str) else written or ()
    pools = tuple(dict.fromkeys(str(name).strip() for name in names))
    for name in pools:
        if name not in POOLS:
            raise UnknownNameError("role of pools to try", name, POOLS, "--pools")
    for name in APART:
        if name in fix and POOL not in pools:
            raise InputError(
                f"is a field of attention pools: ask for them with --pools {POOL}", f"fix.{name}"
            )
    return pools


def _check_deadline(values: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Refuse the deadline of a program where requests are single ones.

    Raises:
        InputError: they are.
    """
    workload = data.get("workload", {})
    if values.get("deadline") is not None and not workload.get("program", {}).get("kind"):
        raise InputError(
            "is the time of a program, and requests are single ones; --use agents without --rate, or a "
            "scenario with `workload.program`, has programs",
            "--deadline",
        )


def _check_clients(values: Mapping[str, Any]) -> None:
    """Refuse clients beside a rate or a file of requests, or a number of them that is none.

    Raises:
        InputError: the reason.
    """
    clients = values.get("concurrency")
    if clients is None:
        return
    if not 1 <= clients <= MOST_CLIENTS:
        raise InputError(f"must be from 1 to {MOST_CLIENTS:,}, found {clients:,}", "--concurrency")
    for name in ("rate", "requests"):
        if values.get(name) is not None:
            raise InputError(f"excludes --{name}: clients send when an answer ends", "--concurrency")


def _states_a_load(values: Mapping[str, Any]) -> bool:
    """Whether arguments state a rate or a number of clients."""
    return values.get("concurrency") is not None or _states_a_rate(values)


def _states_a_rate(values: Mapping[str, Any]) -> bool:
    """Whether arguments state a rate: as a number, or by the times of a file of requests."""
    if values["rate"] is not None or values.get("requests") is None:
        return values["rate"] is not None
    return detect_format(Path(values["requests"])).timed


def _default_objective(values: Mapping[str, Any], types: Sequence[Offer]) -> str:
    """A stated rate is to be carried at least cost (without a price: energy); else goodput counts."""
    if not _states_a_load(values):
        return "goodput"
    return "cost" if all(offer.usd_per_hour for offer in types) else "energy"


def _offers(written: Any, gpus: int | None, prices: bool) -> tuple[Offer, ...]:
    """GPU types from ``dgx-h100=8,dgx-a100-80gb=16@1.2``; none where one cluster is named alone.

    Raises:
        InputError: another form, a type twice, or no count of devices.
        UnknownNameError: no such device or cluster.
    """
    if not isinstance(written, str) or not any(mark in written for mark in ",=@") or exists(Path(written)):
        return ()
    flag = "--cluster"
    offers = []
    for text in written.split(","):
        offer = Offer.parse(text, flag, prices)
        count = offer.available or gpus
        if count is None:
            raise InputError(
                f"write how many devices are available: {text.strip()}=COUNT, or give --gpus", flag
            )
        devices = offer.cluster.nodes * offer.cluster.devices_per_node
        if offer.available and offer.available > devices:
            raise InputError(f"{offer.cluster.name} has {devices:,} devices, asked for {count:,}", flag)
        offers.append(offer.resized(min(count, gpus or count, devices)))
    check_types(offers, flag)
    return tuple(offers)


def _offers_of_pools(cluster: Cluster, pools: list[Pool], folder: Path, where: str) -> tuple[Offer, ...]:
    """GPU types of a scenario whose pools name clusters of their own; none where all share one."""
    taken: dict[str, tuple[Cluster, int]] = {}
    for index, pool in enumerate(pools):
        if pool.cluster is not None:
            pooled = find(clusters, pool.cluster, folder, f"{where}.pools.{index}.cluster")
            count = taken.get(pooled.device.name, (pooled, 0))[1] + pool.devices * pool.replicas
            taken[pooled.device.name] = pooled, count
    others = [
        of_cluster(pooled.resized(count))
        for name, (pooled, count) in taken.items()
        if name != cluster.device.name
    ]
    return (of_cluster(cluster), *others) if others else ()


def _data(
    scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any], where: str, folder: Path
) -> tuple[dict[str, Any], str, Path]:
    """The scenario's mapping with the arguments in it, its name in errors, and its folder."""
    if isinstance(scenario, Mapping):
        data = dict(scenario)
    elif scenario:
        path = scenario_path(str(scenario))
        data, where, folder = read_keys(path), str(path), path.parent
    else:
        data = {"workload": {"kind": "serving", "requests": REQUESTS}}
    values = {
        "model": arguments["model"],
        "cluster": arguments["cluster"],
        "gpus": arguments["gpus"],
        "site": None if arguments.get("site") is None else from_here(arguments["site"], folder),
        "workload.input": _fixed(_new_tokens(arguments)),
        # An embedding takes the prompt's pass, as one output token does.
        "workload.output": _fixed(1 if arguments["osl"] == 0 else arguments["osl"]),
        "workload.arrivals": None
        if arguments["rate"] is None
        else {"kind": "poisson", "rate": arguments["rate"]},
        "workload.prefix": _prefix(arguments),
        "workload.images": arguments.get("images"),
        "workload.slo.ttft": arguments["ttft"],
        "workload.slo.tpot": arguments["tpot"],
        "workload.slo.share": arguments["share"],
        "workload.program.deadline": arguments.get("deadline"),
    }
    if arguments.get("turns") is not None and not scenario:
        values |= _turns(arguments)
    if arguments.get("requests") is not None:
        values |= _trace(Path(arguments["requests"]))
        data = {**data, "workload": _without(data.get("workload", {}), "input", "output", "arrivals")}
        if detect_format(Path(arguments["requests"])).sessions:
            values["workload.arrivals"] = values["workload.arrivals"] or {"kind": "burst"}
    elif not scenario and arguments["rate"] is None:
        # Goodput needs no rate; the event engine sets it.
        values["workload.arrivals"] = {"kind": "burst"}
    for key, value in values.items():
        if value is not None:
            data = changed(data, key, value, where)
    _check_deadline(arguments, data)
    return data, where, folder


def _turns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a workload of agents: turns whose prompts have the asked length in the mean.

    A turn adds the tokens that the one before it lacked, and its answer; what the first of them has beyond
    that is a system prompt of all agents.

    Raises:
        InputError: as of `_shared`.
    """
    isl, osl = values["isl"], values["osl"]
    new = max(isl - (_shared(values) or 0), 1)
    turns = max(min(values["turns"], 1 + 2 * (isl - new) // (new + osl)), 1)
    # Whole spans, so that each further turn adds no more than its new tokens.
    common = (isl - new - (turns - 1) * (new + osl) // 2) // SPAN * SPAN
    return {
        "workload.program.kind": "conversation",
        "workload.program.turns": turns,
        "workload.program.think": values["tool"],
        "workload.input": _fixed(new),
        "workload.prefix": {"tokens": common} if common > 0 else None,
    }


def _trace(path: Path) -> dict[str, Any]:
    """Keys of a workload whose requests are those of a file.

    Raises:
        InputError: the file cannot be read, or is in no known format.
    """
    form = detect_format(path)
    keys: dict[str, Any] = {"workload.trace": {"format": form.name, "path": str(path.resolve())}}
    return keys if form.timed else {**keys, "workload.arrivals": {"kind": "burst"}}


def _without(workload: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in workload.items() if name not in names}


def _shared(values: Mapping[str, Any]) -> int | None:
    """Tokens that prompts share: a number, or a share of the prompt (``0.8``, ``80%``).

    Raises:
        InputError: not readable, without a prompt length, or no fewer than the prompt's tokens.
    """
    raw, isl = values.get("prefix"), values["isl"]
    if raw is None:
        return None
    if isl is None:
        raise InputError("needs --isl, the tokens of a prompt with its prefix", "--prefix")
    text = str(raw).strip()
    written = re.fullmatch(r"(\d{1,9}|\d{0,3}\.\d{1,6})(%|k)?", text)
    if written is None:
        raise InputError(
            f"must be tokens (3000) or a share of the prompt (0.75, 75%), found {text!r}", "--prefix"
        )
    number = float(written[1]) * {"%": 0.01, "k": 1000.0, None: 1.0}[written[2]]
    share = written[2] == "%" or (written[2] is None and "." in written[1])
    tokens = round(number * isl) if share else round(number)
    if tokens >= isl:
        raise InputError(
            f"must be below --isl ({isl:,} tokens, prefix counted), found {tokens:,}", "--prefix"
        )
    return tokens


def _prefix(values: Mapping[str, Any]) -> dict[str, Any] | None:
    tokens = _shared(values)
    return {"tokens": tokens} if tokens else None


def _new_tokens(values: Mapping[str, Any]) -> int | None:
    """Tokens of a prompt behind the shared prefix."""
    return values["isl"] if values["isl"] is None else values["isl"] - (_shared(values) or 0)


def _fixed(tokens: int | None) -> dict[str, Any] | None:
    return None if tokens is None else {"kind": "fixed", "tokens": tokens}


def _engine(values: Mapping[str, Any], written: Any) -> str:
    """Name of the preset: a name of the catalogue, or a family (``vllm``) for its newest.

    Raises:
        UnknownNameError: no such engine.
    """
    name = values["engine"] or (written if isinstance(written, str) else DEFAULT_ENGINE)
    return name if name in engines.names() or RELEASE.fullmatch(name) else nearest(name).engine.name


def _drafts(raw: Any) -> Speculation | None:
    """Drafts as typed: ``none``, or ``KIND[:TOKENS]``.

    Raises:
        InputError: not readable, or a draft model, whose step times a search does not have.
    """
    if raw in (None, "none") or isinstance(raw, Speculation):
        return None if raw == "none" else raw
    drafts = build(Speculation, read_speculation(str(raw)), "--speculate")
    if drafts.kind == DRAFT_MODEL:
        if str(raw).partition(":")[0] not in models.names():
            raise UnknownNameError("kind of speculation", str(raw), (*KINDS[1:], "none"), "--speculate")
        raise InputError(
            f"a search takes {', '.join(KINDS[1:])} or none, found the draft model {raw!r}; a scenario with "
            "`deployment.speculation` runs it",
            "--speculate",
        )
    return drafts


def _value(name: str, raw: Any, option: str) -> Any:
    """A value as typed: numbers where the field is one.

    Raises:
        InputError: not a positive whole number.
    """
    if name == "speculation":
        return _drafts(raw)
    if name == RATIO:
        return read_ratio(raw, f"{option}.{name}")
    if name not in NUMBERS or name not in FIELDS:
        return raw
    text = str(raw)
    least, largest = LEAST.get(name, 1), MOST.get(name, LARGEST)
    if not text.isdigit() or len(text) > 9 or not least <= int(text) <= largest:
        raise InputError(
            f"must be a whole number from {least} to {largest:,}, found {shown(raw)}", f"{option}.{name}"
        )
    return int(text)
