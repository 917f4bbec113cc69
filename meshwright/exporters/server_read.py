"""Servers of launch files as a serving scenario: options become pools, engine and its options.

A launch file states no load; the scenario gets one of `LOAD`, which a note names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from core.errors import InputError, shown
from meshwright.exporters import exporter
from meshwright.exporters.base import Imported
from meshwright.exporters.server_files import LaunchedServer
from meshwright.exporters.server_graphs import read_graphs
from meshwright.exporters.serving import DRAFT_METHODS
from meshwright.exporters.table import Facts, LauncherTable, Options, integer, same, table, within
from simulator.models import Model, models
from simulator.models.checkpoints import format_of_name
from simulator.scenario import find
from simulator.serving.engines import Engine, nearest
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.scenario import make_serving

LOAD: Mapping[str, Any] = {
    "kind": "serving",
    "requests": 200,
    "arrivals": {"kind": "closed", "concurrency": 16},
    "input": {"kind": "fixed", "tokens": 1000},
    "output": {"kind": "fixed", "tokens": 200},
}
FAMILY = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
MODEL = {"vllm": ("--model",), "sglang": ("--model-path", "--model"), "trtllm": ("model", "model_path")}
"""Options that name the checkpoint."""
SAME: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "--tp": "--tp-size",
        "--tensor-parallel-size": "--tp-size",
        "--pp": "--pp-size",
        "--pipeline-parallel-size": "--pp-size",
        "--dp": "--dp-size",
        "--data-parallel-size": "--dp-size",
        "--ep": "--ep-size",
        "--expert-parallel-size": "--ep-size",
        "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
        "--attn-dp-size": "--attn-dp-size",
    },
    "trtllm": {
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "ep_size": "moe_expert_parallel_size",
        "kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "kv_cache_dtype": "kv_cache_config.dtype",
    },
    "vllm": {"--enable-ep": "--enable-expert-parallel"},
}
"""Other spellings of options."""
DECIDING = re.compile(
    r"paralle|expert|moe|batch|max[-_]|memory|mem-|cache|quant|dtype|spec|draft|graph|eager|prefill|chunk|sched"
    r"|overlap|attention|attn|offload|lora|compil|stream|block|page|radix|disagg|role|backend|size|fraction|mamba"
)
"""Parts of the names of options that change times or memory."""
HARMLESS = re.compile(
    r"^-{0,2}(host|port|uvicorn.*|served[-_]model[-_]name|trust[-_]remote[-_]code|api[-_]key.*|tool[-_].*|reasoning.*"
    r"|enable[-_]auto[-_]tool[-_]choice|chat[-_]template.*|disable[-_]log.*|no[-_]enable[-_]log.*|enable[-_]log.*|log.*"
    r"|seed|download.*|load[-_]format|tokenizer.*|revision|root[-_]path|ssl.*|allowed.*|middleware|response[-_]role"
    r"|hf[-_].*|ignore[-_]patterns|generation[-_]config|override[-_].*|limit[-_]mm.*|mm[-_].*|metadata.*|node[-_]rank"
    r"|master[-_].*|dist[-_]init.*|nccl.*|distributed[-_]executor[-_]backend|headless|enable[-_]metrics.*|show[-_]time.*"
    r"|watchdog.*|random[-_]seed|enable[-_]request.*|collect.*|swap[-_]space|max[-_]log[-_]len|gpus[-_]per[-_]node|backend"
    r"|num[-_]postprocess[-_]workers|enable[-_]prompt.*|structured.*|guided.*|grammar.*|async[-_]engine.*|kv[-_]events.*"
    r"|disaggregation[-_](bootstrap[-_]port|transfer[-_]backend|ib[-_]device)|all2all[-_]backend|data[-_]parallel[-_]"
    r"(backend|address|rpc.*|rank|start.*|hybrid.*|external.*)|api[-_]server[-_]count|uds|h11.*|enable[-_]server.*"
    r"|weight[-_]version|model[-_]impl|runner|task|convert|return[-_].*|print[-_].*|cluster[-_]size|extra[-_].*|metrics.*"
    r"|reporter.*|dyn[-_].*|endpoint.*|namespace|modality|publish.*|request[-_].*|connector|is[-_]prefill[-_]worker"
    r"|is[-_]decode[-_]worker|router.*|store.*|event.*|language[-_]model[-_]only|load[-_]balance[-_]method|prefill[-_]round[-_]robin[-_]balance|skip[-_].*|warmups|constrained.*"
    r"|cuda[-_]graph[-_]config\.enable[-_]padding|disable[-_]uvicorn.*|enable[-_]cache[-_]report|file[-_].*|prefetch.*|enable[-_]force.*|max[-_]logprobs)$"
)
"""Options without an effect on a steady state's times and memory."""


def read_servers(servers: Sequence[LaunchedServer], stated: Mapping[str, Any], where: str) -> Imported:
    """A serving scenario of the servers of a launch file.

    Args:
        servers: their commands.
        stated: ``model``, ``cluster`` and ``gpus`` of the user; they replace what the file says.
        where: to name in errors.

    Raises:
        InputError: an option that no prediction reads and that may change it, a part of the question missing,
            or a deployment that cannot run.
    """
    if "cluster" not in stated:
        raise InputError("launch files do not name the cluster: give --cluster", where)
    named = {str(stated.get("model") or _named(server)) for server in servers} - {""}
    unset = [name for name in named if "$" in name and models.resolve(name) is None]
    if unset or not named:
        what = f"set {unset[0]!r}, which is" if unset else "name"
        raise InputError(f"the launch file does not {what} the model: give --model", where)
    if len(named) > 1:
        raise InputError(f"servers of several models ({', '.join(sorted(named))}): give one file each", where)
    name = next(iter(named))
    model = find(models, name, Path(), f"{where}: model")
    pools, aside, notes = [], {}, []
    for server in servers:
        pool, left, more = _pool(server, model, name, where)
        pools.append(pool)
        aside |= left
        notes += [note for note in more if note not in notes]
    gpus = sum(pool.pop("devices") * pool.get("replicas", 1) for pool in pools)
    if (devices := stated.get("gpus")) and len(pools) == 1 and devices % gpus == 0:
        pools[0]["replicas"] = pools[0].get("replicas", 1) * (devices // gpus)
        gpus = devices
    if len(pools) == 1:
        deployment = pools[0]
        deployment.pop("role", None) if deployment.get("role") == "mixed" else None
    else:
        deployment = {"pools": [{"name": f"{pool['role']}-{i}", **pool} for i, pool in enumerate(pools)]}
        if len({pool["role"] for pool in pools}) == len(pools):
            deployment = {"pools": pools}
    load = {**LOAD, **({} if model.causal else {"output": {"kind": "fixed", "tokens": 1}})}
    scenario = {"model": name, "cluster": stated["cluster"], "gpus": gpus, "workload": load}
    scenario["deployment"] = deployment
    notes.append(
        "the file states no load: 16 clients with prompts of 1,000 and answers of "
        f"{200 if model.causal else 1} tokens stand for it"
    )
    make_serving(scenario, where, Path())
    unknown = tuple(option for option in aside if not HARMLESS.match(option))
    return Imported(scenario, servers[0].engine, aside, unknown, tuple(notes))


def _named(server: LaunchedServer) -> str:
    name = next((server.options[key] for key in MODEL[server.engine] if key in server.options), server.model)
    return server.predicted if "$" in str(name) and server.predicted in models.names() else str(name)


def _pool(
    server: LaunchedServer, model: Model, name: str, where: str
) -> tuple[dict[str, Any], Options, list[str]]:
    """The pool of a server, with its ``devices``; options kept aside, and notes."""
    launcher = table(exporter(server.engine).table)
    options = {SAME[server.engine].get(key, key): value for key, value in server.options.items()}
    options = {key: value for key, value in options.items() if key not in MODEL[server.engine]}
    notes = list(server.notes)
    pool: dict[str, Any] = {"role": server.role or "mixed"}
    preset = nearest(FAMILY[server.engine], server.version)
    pool["engine"] = server.preset or preset.engine.name
    if preset.assumed and not server.preset:
        release = f"{server.version} has no preset" if server.version else "the file names no release"
        longer = "; times of an older release are likely longer" * _older(server.version, preset.engine)
        notes.append(f"{release}: {preset.engine.name} stands for it{longer}")
    if server.backend:
        notes.append(
            f"VLLM_ATTENTION_BACKEND {server.backend} is left out: the release's own kernels are priced"
        )
    notes += _connector(options, pool, where)
    notes += read_graphs(options, pool, where)
    _formats(options, pool, name, where)
    launcher.check(options, where)
    PARTS[server.engine](options, pool, model, where)
    facts, left = _facts(launcher, options)
    _stated(facts, pool, where)
    said = [key for key, value in left.items() if value not in (False, "false", None)]
    strange = [key for key in said if not HARMLESS.match(key) and DECIDING.search(key)]
    if strange:
        spelled = [entry.option for entry in launcher.options.values() if entry.option]
        likely = get_close_matches(strange[0], spelled, 1, 0.8)
        hint = f"; did you mean {likely[0]!r}?" if likely else ""
        problem = f"is not read, and may change times or memory{hint}; leave it out to predict the server"
        ways = "without it, or state the field of the deployment"
        raise InputError(f"{problem} {ways}", f"{where}: {strange[0]}")
    if (server.replicas or 1) > 1:
        pool["replicas"] = server.replicas
    pool["devices"] = pool.get("tensor", 1) * pool.get("data", 1) * pool.get("pipeline", 1)
    return pool, left, notes


def _formats(options: Options, pool: dict[str, Any], name: str, where: str) -> None:
    """Number formats of weights and KV, whose values have many spellings."""
    for key in ("--kv-cache-dtype", "kv_cache_config.dtype"):
        value = str(options.pop(key, "auto")).lower()
        if value in ("auto", "none"):
            continue
        stored = next((kind for kind in ("fp8", "bf16", "fp16", "int8", "fp4") if kind in value), None)
        stored = stored or {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(value)
        if stored is None:
            raise InputError(f"no KV format {value!r} is predicted", f"{where}: {key}")
        pool["kv"] = stored
    quantised = str(options.pop("--quantization", "none")).lower()
    if quantised in ("fp8", "w8a8_fp8"):
        pool["weights"] = "fp8"
    elif (
        quantised not in ("none", "auto")
        and format_of_name(name) is None
        and models.get(name).checkpoint == "bf16"
    ):
        pool["weights"] = format_of_name(quantised) or _refused(quantised, where)
    stored = str(options.pop("--dtype", options.pop("dtype", "auto"))).lower()
    if stored in ("half", "float16") and "weights" not in pool and format_of_name(name) is None:
        pool["weights"] = "fp16"


def _older(version: str, engine: Engine) -> bool:
    """Whether a release is older than a preset that stands for it."""
    numbers = [
        tuple(int(part) for part in re.findall(r"\d{1,9}", text)[:3]) for text in (version, engine.version)
    ]
    return bool(numbers[0]) and numbers[0] < numbers[1]


def _facts(launcher: LauncherTable, options: Options) -> tuple[Facts, Options]:
    """Facts that options state, without the values that their absence means; options without a fact."""
    facts, left = launcher.read(options)
    silent = {
        field
        for field, entry in launcher.options.items()
        if entry.choices
        and not any(same(facts.get(field), c.value) and c.sets for c in entry.choices if within(c, options))
    }
    return {field: value for field, value in facts.items() if field not in silent}, left


def _refused(method: str, where: str) -> str:
    raise InputError(
        f"how many bits {method!r} weights have is not known: name the checkpoint with --model",
        f"{where}: --quantization",
    )


def _number(options: Options, key: str, where: str) -> int | None:
    value = options.pop(key, None)
    return None if value is None else _count(str(value), f"{where}: {key}")


def _count(text: str, where: str) -> int:
    """A whole number, also as 32k (thousands) and 32K (1,024)."""
    if match := re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([kKmM]?)", text.strip()):
        return int(float(match[1]) * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[match[2]])
    raise InputError(f"a whole number is needed, found {text[:40]!r}", where)


def _share(value: object, where: str) -> float:
    """A share of memory.

    Raises:
        InputError: no number above 0 and up to 1.
    """
    text = str(value).strip()
    share = float(text) if re.fullmatch(r"\d{0,6}\.?\d{1,12}", text) else 0.0
    if not 0 < share <= 1:
        raise InputError(f"a share of memory above 0 and up to 1 is needed, found {text[:40]!r}", where)
    return share


def _vllm(options: Options, pool: dict[str, Any], model: Model, where: str) -> None:
    data = _number(options, "--data-parallel-size", where) or 1
    if model.moe:
        pool["data"] = data
    elif data > 1:
        pool["replicas"] = data
    tensor = _number(options, "--tensor-parallel-size", where) or 1
    pool["tensor"] = tensor
    if options.pop("--enable-expert-parallel", False) not in (False, "false") and model.moe:
        pool["expert"] = tensor * pool["data"]
    for key in (
        "--max-model-len",
        "--max-num-batched-tokens",
        "--max-num-seqs",
        "--max-cudagraph-capture-size",
    ):
        if key not in options:
            continue
        if str(options[key]) in ("-1", "auto"):
            del options[key]
        else:
            options[key] = _count(str(options[key]), f"{where}: {key}")
    options.pop("--data-parallel-size-local", None)
    if (role := options.pop("--disaggregation-mode", None)) in ("prefill", "decode"):  # Of Dynamo's worker.
        pool["role"] = role
    if (text := options.pop("--speculative-config", None)) is not None:
        spec = _json(text, where, "--speculative-config")
        kinds = {names[0]: kind for kind, names in DRAFT_METHODS.items() if names[0]}
        _drafts(
            pool,
            kinds.get(str(spec.get("method"))),
            spec.get("num_speculative_tokens"),
            spec.get("model"),
            where,
        )


def _connector(options: Options, pool: dict[str, Any], where: str) -> list[str]:
    """The role of vLLM's ``--kv-transfer-config``, and what a connector that keeps KV elsewhere takes."""
    text = options.pop("--kv-transfer-config", None)
    if text is None:
        return []
    config = _json(text, where, "--kv-transfer-config")
    roles = {"kv_producer": "prefill", "kv_consumer": "decode"}
    pool["role"] = roles.get(str(config.get("kv_role")), pool["role"])
    if pool["role"] != "mixed":
        return []
    return [
        f"{shown(config.get('kv_connector'))} is left out: its cache off the device, and its buffers on it, "
        "which take KV room (a fifth beside LMCache in vLLM's issue 21348); deployment.tiers states a cache "
        "on the host"
    ]


def _json(text: object, where: str, key: str) -> Mapping[str, Any]:
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise InputError("a JSON object is needed", f"{where}: {key}")
    return value


def _drafts(pool: dict[str, Any], kind: str | None, tokens: object, draft: object, where: str) -> None:
    """Speculation of a pool; its acceptance is the usual one of its kind.

    Raises:
        InputError: a method that no prediction knows.
    """
    if kind is None:
        raise InputError("this method of speculation is not predicted; leave it out", f"{where}: speculation")
    pool["speculation"] = {"kind": kind, "tokens": _count(str(tokens or 1), f"{where}: speculation")}
    if kind == "draft-model" and isinstance(draft, str):
        pool["speculation"]["draft"] = draft


def _sglang(options: Options, pool: dict[str, Any], model: Model, where: str) -> None:
    ranks = _number(options, "--tp-size", where) or 1
    data = _number(options, "--attn-dp-size", where) or 1
    ranks_of_data = _number(options, "--dp-size", where) or 1
    if options.pop("--enable-dp-attention", False) not in (False, "false"):
        data = ranks_of_data
    elif ranks_of_data > 1:
        pool["replicas"] = ranks_of_data
    if ranks % data:
        raise InputError(f"{ranks} ranks do not divide by {data} attention ranks", f"{where}: --dp-size")
    pool |= {"tensor": ranks // data, "data": data}
    if (expert := _number(options, "--ep-size", where)) and model.moe:
        pool["expert"] = expert
    elif model.moe and options.get("--moe-a2a-backend") == "deepep":
        pool["expert"] = ranks
    if (share := options.pop("--mem-fraction-static", None)) is not None:
        pool.setdefault("options", {})["memory_share"] = _share(share, where)
    chunk = options.get("--chunked-prefill-size")
    if chunk is not None and str(chunk) != "-1":
        pool.setdefault("options", {})["token_budget"] = _number(options, "--chunked-prefill-size", where)
    _kv_blocks(
        options,
        "--max-total-tokens",
        pool,
        _count(str(options.get("--page-size", 1)), f"{where}: --page-size"),
        where,
    )
    algorithm = options.pop("--speculative-algorithm", None)
    if algorithm is not None:
        kinds = {names[1]: kind for kind, names in DRAFT_METHODS.items() if names[1]}
        steps = options.pop("--speculative-num-steps", 1)
        for key in ("--speculative-eagle-topk", "--speculative-num-draft-tokens"):
            options.pop(key, None)
        _drafts(
            pool, kinds.get(str(algorithm)), steps, options.pop("--speculative-draft-model-path", None), where
        )
    options.pop("--speculative-draft-model-path", None)


def _kv_blocks(options: Options, key: str, pool: dict[str, Any], block: int, where: str) -> None:
    if (tokens := _number(options, key, where)) is not None:
        pool.setdefault("options", {})["kv_blocks"] = tokens // max(block, 1)


def _trtllm(options: Options, pool: dict[str, Any], model: Model, where: str) -> None:
    ranks = _number(options, "tensor_parallel_size", where) or 1
    whole_ranks = str(options.pop("enable_attention_dp", False)).lower() == "true"
    pool |= {"tensor": 1, "data": ranks} if whole_ranks else {"tensor": ranks}
    expert = _number(options, "moe_expert_parallel_size", where)
    options.pop("moe_tensor_parallel_size", None)
    if expert and model.moe:
        pool["expert"] = expert
    if (share := options.pop("kv_cache_config.free_gpu_memory_fraction", None)) is not None:
        pool.setdefault("options", {})["memory_share"] = _share(share, where)
    block = _count(str(options.get("kv_cache_config.tokens_per_block", 32)), f"{where}: tokens_per_block")
    _kv_blocks(options, "kv_cache_config.max_tokens", pool, block, where)
    role = str(options.pop("server_role", options.pop("disaggregation_mode", ""))).lower()
    pool["role"] = {
        "context": "prefill",
        "generation": "decode",
        "prefill": "prefill",
        "decode": "decode",
    }.get(role, pool["role"])
    for name in ("backend", "max_tokens_in_buffer"):
        options.pop(f"cache_transceiver_config.{name}", None)
    kind = options.pop("speculative_config.decoding_type", None)
    if kind is not None:
        kinds = {names[2]: draft_kind for draft_kind, names in DRAFT_METHODS.items() if names[2]}
        tokens = options.pop("speculative_config.max_draft_len", None) or options.pop(
            "speculative_config.num_nextn_predict_layers", 1
        )
        draft = options.pop("speculative_config.speculative_model_dir", None)
        _drafts(pool, kinds.get(str(kind)), tokens, draft, where)


PARTS: Mapping[str, Callable[[Options, dict[str, Any], Model, str], None]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "trtllm": _trtllm,
}
"""Degrees, roles, memory and drafts of each engine's options."""


def _stated(facts: Facts, pool: dict[str, Any], where: str) -> None:
    """Facts of the table as fields of the pool and options of its engine."""
    for field, value in facts.items():
        part, _, name = field.partition(".")
        if part == "pool" and name in Pool.model_fields and name not in pool:
            number = Pool.model_fields[name].annotation is int or (isinstance(value, str) and value.isdigit())
            pool[name] = integer(facts, field, where) if number else value
        elif part == "options" and name in EngineOptions.model_fields:
            pool.setdefault("options", {}).setdefault(name, _typed(facts, field, where))
        elif field == "role" and value != "mixed":
            pool["role"] = value
        elif field == "derived.exchange":
            pool["exchange"] = str(value).partition(",")[0]
        elif field == "derived.two_batches" and value:
            pool["overlap"] = {"kind": "two-batches"}
    pool["options"] = {name: value for name, value in pool.get("options", {}).items() if value is not None}


def _typed(facts: Facts, field: str, where: str) -> Any:
    """The value of an option of an engine in the type that the option has."""
    value, kind = facts[field], EngineOptions.model_fields[field.partition(".")[2]].annotation
    if int in (kind, *get_args(kind)):
        return integer(facts, field, where)
    if kind is float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise InputError(f"a number is needed, found {value!r}", f"{where}: {field}") from None
    return value
