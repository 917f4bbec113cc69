"""Measured loads of servers, in the result files of benchmark clients.

Read are JSON and JSON Lines of ``vllm bench serve`` (vllm/benchmarks/serve.py) and of SGLang's
``bench_serving`` (python/sglang/bench_serving.py), which share their keys; ``profile_export_aiperf.json`` of
AIPerf (docs: JSON export schema); ``benchmarks.json`` of guidellm (benchmark/schemas/generative/metrics.py);
and the formats of `client_results`. Entries without a load are skipped with the reason.
The server itself is a serving scenario, ``plan.yaml`` in the file's folder. Rows of a CSV with the columns of
closed loops (docs/accuracy/training.md) state their server themselves.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import InputError, shown
from core.files import beginning
from core.loading import exists, read_mapping, read_text
from core.parsing import no_such_file
from core.written_numbers import measured
from meshwright.observations.client_results import TABLE, is_inference_perf, of_inference_perf, tables_of
from meshwright.observations.lean_json import read_lean
from meshwright.observations.training_logs import PLAN
from meshwright.validation.readers import reader
from simulator.kinds import kind_of
from simulator.models import models
from simulator.ops.counts import model_parameters
from simulator.uncertainty.servers import MeasuredLoad

SUFFIXES = (".json", ".jsonl")
"""Suffixes of files that are read as results of a benchmark client."""
BEGINNING = 2**20
"""Bytes in which a printed table begins; a server's own lines may stand above it."""
PRINTED = (".txt", ".log", ".out")
"""Suffixes of files that may hold a client's printed table."""
BURST = 0.4
"""Share of the requests that are in flight in the mean from which all were sent at once."""
CLOSED_LOOPS = ("isl_tokens", "osl_tokens", "concurrency")
"""Columns that tell a CSV of closed loops from one of training steps."""
LATENCIES = ("ttft_mean", "ttft_p50", "tpot_mean", "tpot_p50")
MOST_TOKENS, MOST_CLIENTS = 2**24, 2**16
ROUNDS, MOST_REQUESTS = 10, 20_000
"""Requests of a client where a file states none, as InferenceX's; most of a run that has more than these: its
means have settled."""


def is_servers(path: Path) -> bool:
    """Whether a file holds measured servers: results of a client, or a CSV with the columns of closed loops.

    Raises:
        InputError: unreadable.
    """
    if path.suffix in SUFFIXES:
        return True
    if path.suffix in PRINTED:
        return TABLE in beginning(path, BEGINNING)
    if path.suffix != ".csv":
        return False
    return set(CLOSED_LOOPS) <= set(next(csv.reader(read_text(path).splitlines()[:1]), []))


def read_servers(path: Path) -> tuple[list[MeasuredLoad], list[tuple[str, str]]]:
    """Loads of a file, and rows that were left out with the reasons.

    Raises:
        InputError: unreadable, no known format, or no scenario of the server beside a client's results.
    """
    if path.suffix == ".csv":
        return reader("serving.loads", "rows of closed loops").read_loads(path)
    return _results(path)


def _results(path: Path) -> tuple[list[MeasuredLoad], list[tuple[str, str]]]:
    server = path.parent / PLAN
    if not path.is_file():
        raise no_such_file(path)
    if not server.is_file():
        raise InputError(
            f"the scenario of a measured server is {PLAN} in its folder; there is none", str(path)
        )
    data = dict(read_mapping(server))
    if kind_of(data, str(server), server.parent).above != "deployment":
        raise InputError("asks about training; a serving scenario is needed", str(server))
    loads, skipped, refused = [], [], None
    for number, (entry, model) in enumerate(_entries(_parsed(path), str(path)), 1):
        where = f"{path}: result {number}"
        if model:
            check_model(model, data.get("model"), server.parent, where)
        try:
            name = f"{path.parent.name}/{path.name}:{number}"
            loads.append(_load(entry, data, server.parent, name, where))
        except InputError as error:
            refused = refused or error
            skipped.append((f"{path.name}: result {number}", error.problem))
    if refused is not None and not loads:
        raise refused
    if not loads:
        raise InputError("holds no result", str(path))
    return loads, skipped


MODEL_KEYS = ("model_id", "model", "served_model_name", "model_name")
"""Keys under which clients keep the name of the model that they asked."""
SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?)b(?![a-z0-9])")
SIZES_APART = 1.35
"""Ratio of sizes in a name and of the plan's model from which they are two models."""


def check_model(name: str, planned: object, folder: Path, where: str) -> None:
    """Refuse a result of another model than the plan's; a name that tells nothing passes.

    Args:
        name: of the model, as the client kept it.
        planned: the plan's model.
        folder: of the plan.
        where: to name in errors.

    Raises:
        InputError: they are two models.
    """
    if not isinstance(planned, str | Mapping):
        return
    reference = planned
    if isinstance(planned, str) and planned not in models.names() and exists(folder / planned):
        reference = str(folder / planned)
    model = models.get(reference)
    ours, theirs = models.resolve(model.name), models.resolve(name)
    sizes = [float(size) * 1e9 for size in SIZE.findall(name.lower())]
    counted = model_parameters(model)
    other = bool(ours and theirs and ours != theirs)
    if not theirs and sizes:  # the first size of 30B-A3B is the whole
        other = not 1 / SIZES_APART < sizes[0] / counted < SIZES_APART
    if other:
        raise InputError(
            f"is of the model {shown(name)}; the scenario beside it ({PLAN}) is of {model.name}: give the "
            "scenario of that server, or leave the file out",
            where,
        )


def _parsed(path: Path) -> list[Any]:
    """The values of a JSON or JSON Lines file, or of printed tables.

    Raises:
        InputError: it is neither.
    """
    text = read_lean(path)
    if path.suffix in PRINTED:
        return list(tables_of(text))
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        problem = f"is neither JSON nor JSON Lines: {str(error)[:200]}"
        raise InputError(problem, str(path)) from None


def _entries(values: Sequence[Any], where: str) -> Iterator[tuple[Mapping[str, float], str]]:
    """One mapping a load (``clients`` or ``rate``, ``requests``, ``prompt``, ``output`` and latencies in s),
    and the name of the model, where the client kept it.

    Raises:
        InputError: a value in no known format.
    """
    for value in values:
        named = [value[key] for key in MODEL_KEYS if isinstance(value, Mapping) and key in value]
        model = next((name for name in named if isinstance(name, str)), "")
        if isinstance(value, Mapping) and "mean_ttft_ms" in value and "total_input_tokens" in value:
            yield _of_bench(value), model
        elif isinstance(value, Mapping) and isinstance(value.get("time_to_first_token"), Mapping):
            yield _of_aiperf(value), model
        elif isinstance(value, Mapping) and is_inference_perf(value):
            yield {key: _number(figure) for key, figure in of_inference_perf(value).items()}, model
        elif isinstance(value, Mapping) and isinstance(value.get("benchmarks"), list):
            yield from (
                (_of_guidellm(each), _guided(each))
                for each in value["benchmarks"]
                if isinstance(each, Mapping)
            )
        else:
            raise InputError(
                "is no result of vllm bench serve, SGLang's bench_serving, AIPerf, genai-perf, guidellm or "
                f"inference-perf: found {shown(list(value)[:6] if isinstance(value, Mapping) else value)}",
                where,
            )


def _guided(value: Mapping[str, Any]) -> str:
    """The model of a benchmark of guidellm."""
    config = value.get("config") or value.get("args")
    backend = config.get("backend") if isinstance(config, Mapping) else None
    name = backend.get("model") if isinstance(backend, Mapping) else None
    return name if isinstance(name, str) else ""


def _number(value: Any) -> float:
    """A measured figure of a JSON file; 0 for anything else."""
    return 0.0 if isinstance(value, str) else measured(value) or 0.0


def _of_bench(value: Mapping[str, Any]) -> dict[str, float]:
    """A result of ``vllm bench serve`` or SGLang's ``bench_serving``."""
    requests = max(_number(value.get("completed")), 1.0)
    values = {
        "clients": _number(value.get("max_concurrency")),
        "rate": _number(value.get("request_rate")),
        "requests": requests,
        "prompt": _number(value.get("total_input_tokens")) / requests,
        "output": _number(value.get("total_output_tokens")) / requests,
    }
    for name in ("ttft", "tpot"):
        values[f"{name}_mean"] = 1e-3 * _number(value.get(f"mean_{name}_ms"))
        values[f"{name}_p50"] = 1e-3 * _number(value.get(f"median_{name}_ms"))
    if not values["clients"] and not values["rate"]:
        in_flight = (
            requests if "request_rate" in value else _in_flight(values, _number(value.get("duration")))
        )
        # An infinite rate sends all requests at once; their mean wait is half of the run, or more.
        values["clients"] = in_flight if in_flight < BURST * requests else requests
    return values


def _in_flight(values: Mapping[str, float], duration_s: float) -> float:
    """Requests in flight by Little's law: their rate times their mean latency; all without a duration."""
    latency_s = values["ttft_mean"] + values["tpot_mean"] * max(values["output"] - 1.0, 0.0)
    return max(values["requests"] * latency_s / duration_s, 1.0) if duration_s else values["requests"]


def _of_aiperf(value: Mapping[str, Any]) -> dict[str, float]:
    """AIPerf's export; its latency between tokens is that of a request, without the first token."""

    def figure(name: str, kind: str = "avg") -> float:
        block = value.get(name)
        if not isinstance(block, Mapping):
            return 0.0
        scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(str(block.get("unit")), 1.0)
        return scale * _number(block.get(kind))

    config = value.get("input_config")
    config = config if isinstance(config, Mapping) else {}
    load: Mapping[str, Any] = config
    for key in ("loadgen", "perf_analyzer", "stimulus"):  # genai-perf keeps the load two steps down
        inner = load.get(key)
        load = inner if isinstance(inner, Mapping) else load
    return {
        "clients": _first(load.get("concurrency")),
        "rate": _first(load.get("request_rate")),
        "requests": figure("request_count"),
        "prompt": figure("input_sequence_length"),
        "output": figure("output_sequence_length"),
        **{
            f"{name}_{ours}": figure(theirs, kind)
            for name, theirs in (("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"))
            for ours, kind in (("mean", "avg"), ("p50", "p50"))
        },
    }


def _first(value: Any) -> float:
    """A number, or the first of a list of them."""
    return _number(value[0] if isinstance(value, list) and value else value)


def _of_guidellm(value: Mapping[str, Any]) -> dict[str, float]:
    """One benchmark of guidellm's report; its latency between tokens leaves out the first token.

    Latencies are left out where some request streamed no content: reports count it as 0 ms
    (benchmark/schemas/generative/metrics.py: ``time_to_first_token_ms or 0.0``; up to 0.6, answers that end
    while a model still thinks).
    """
    metrics = value.get("metrics")
    metrics = metrics if isinstance(metrics, Mapping) else {}

    def block(name: str) -> Mapping[str, Any]:
        metric = metrics.get(name)
        summary = metric.get("successful") if isinstance(metric, Mapping) else None
        return summary if isinstance(summary, Mapping) else {}

    def figure(name: str, kind: str = "mean") -> float:
        return _number(block(name).get(kind))

    def latency(name: str, kind: str) -> float:
        return 0.0 if block(name).get("min") == 0 else 1e-3 * figure(name, kind)

    config = value.get("config") or value.get("args")
    strategy = config.get("strategy") if isinstance(config, Mapping) else None
    strategy = strategy if isinstance(strategy, Mapping) else {}
    alone = strategy.get("type_") == "synchronous"
    totals = metrics.get("request_totals")
    return {
        "clients": 1.0 if alone else _number(strategy.get("streams")),
        "rate": _number(strategy.get("rate")),
        "requests": _number(totals.get("successful")) if isinstance(totals, Mapping) else 0.0,
        "prompt": figure("prompt_token_count"),
        "output": figure("output_token_count"),
        **{
            f"{name}_{ours}": latency(theirs, kind)
            for name, theirs in (("ttft", "time_to_first_token_ms"), ("tpot", "inter_token_latency_ms"))
            for ours, kind in (("mean", "mean"), ("p50", "median"))
        },
    }


def _load(
    entry: Mapping[str, float], data: Mapping[str, Any], folder: Path, name: str, where: str
) -> MeasuredLoad:
    """A load on the server of a scenario.

    Raises:
        InputError: no load, no lengths or no latencies.
    """
    for key, words in (("prompt", "prompt tokens"), ("output", "output tokens")):
        if not 1 <= entry[key] <= MOST_TOKENS:
            raise InputError(f"states no {words}", where)
    clients, rate = round(entry["clients"]), entry["rate"]
    if clients < 1 and rate <= 0:
        raise InputError("states neither a concurrency nor a rate", where)
    if clients > MOST_CLIENTS:
        raise InputError(f"states {clients:,} clients; at most {MOST_CLIENTS:,} are run", where)
    rounds = ROUNDS * max(clients, ROUNDS)
    latencies = {kind: entry[kind] for kind in LATENCIES if entry[kind] > 0}
    if not latencies:
        raise InputError("states neither TTFT nor TPOT", where)
    arrivals = (
        {"kind": "closed", "concurrency": clients}
        if clients >= 1
        else {"kind": "poisson", "rate": float(rate)}
    )
    workload = {
        "kind": "serving",
        "requests": min(round(entry["requests"]) or rounds, max(rounds, MOST_REQUESTS)),
        "arrivals": arrivals,
        "input": {"kind": "fixed", "tokens": round(entry["prompt"])},
        "output": {"kind": "fixed", "tokens": round(entry["output"])},
    }
    server = {key: value for key, value in data.items() if key not in ("workload", "variations", "site")}
    return MeasuredLoad(name, {**server, "workload": workload}, latencies, folder)
