"""Common parts of serving exporters: facts of a pool, memory shares from bytes, the launch script."""

from __future__ import annotations

import json
from collections.abc import Mapping

from meshwright.exporters.base import (
    Export,
    ExportQuestion,
    array,
    commented,
    flags,
    header,
    one_line,
    required,
)
from meshwright.exporters.launchers import FAMILIES
from meshwright.exporters.routers import FILE as ROUTER
from meshwright.exporters.routers import disaggregated, needs_router, router_script
from meshwright.exporters.table import Facts, LauncherTable, Options
from simulator.serving.overlaps.pieces import TwoBatches
from simulator.serving.question.speculation import Kind
from simulator.serving.setting import PoolSetting, ServingSetting
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.memory import ReplicaMemory, memory
from simulator.serving.steps.price import StepPrice

NOTES = ("the checkpoint: MODEL=path or Hugging Face name",)
ADAPTER_PATHS = {
    "vllm": "--lora-modules NAME=PATH ..., or /v1/load_lora_adapter",
    "sglang": "--lora-paths NAME=PATH ..., or /load_lora_adapter",
    "trtllm": "each request carries lora_request with its path",
}
OF_FLEETS = {
    "overlap": "an engine overlaps what its own code can",
    "state": "no engine here keeps KV this way",
    "stream": "the engines' options of offloaded weights name other units",
    "start": "how a replica starts is up to the platform",
    "expert_kernels": "engines choose the kernels of their experts (vLLM: --moe-backend)",
    "product_kernels": "engines choose the kernels of their products (SGLang: --fp8-gemm-backend)",
    "all_reduce": "engines reduce by their own kernels and NCCL",
    "finetuning": "no engine here fine-tunes beside its requests",
}
"""Pool fields that no engine has an option for, and why."""
GRAPH_SIZES = {
    "vllm": "set --cudagraph-capture-sizes",
    "sglang": "set --cuda-graph-bs",
    "tensorrt-llm": "set cuda_graph_config.batch_sizes",
}
"""How an engine takes ``graph_sizes``."""
UNTOLD = (
    "graph_sizes",
    "model",
    "name",
    "role",
    "replicas",
    "engine",
    "options",
    "site",
    "speculation",
    "scaler",
    "scaler_options",
    *OF_FLEETS,
)
"""Pool fields that are no options of an engine."""


def pool_facts(setting: ServingSetting, pool: PoolSetting) -> Facts:
    """All facts of a pool that an engine may need."""
    shape, options = pool.pool, pool.options
    facts: Facts = {f"pool.{name}": value for name, value in shape.model_dump().items() if name not in UNTOLD}
    facts |= {f"options.{name}": value for name, value in options.model_dump().items()}
    facts.pop("options.scheduler_options")
    for name in ("options.max_context", "options.kv_blocks", "pool.expert_tensor"):
        facts[name] = facts[name] or None
    facts["derived.pooling"] = None if pool.model.causal else True
    if pool.model.moe is None:
        facts["pool.expert"] = facts["pool.expert_tensor"] = None
    facts["role"] = shape.role
    facts["derived.experts_spread"] = shape.expert > 1
    facts["derived.all_ranks"] = shape.tensor * shape.data
    facts["derived.attention_dp"] = shape.data > 1
    if shape.data > 1:
        facts["derived.attention_ranks"] = shape.data
    if options.chunked_prefill:
        facts["derived.chunk"] = options.token_budget
    if options.kv_blocks:
        facts["derived.kv_tokens"] = options.kv_blocks * options.block_tokens
    nodes = setting.cluster.nodes_for(shape.devices)
    if nodes > 1:
        facts["derived.nodes"] = nodes
    if two_batches(pool):
        facts["derived.two_batches"] = True
    if shape.exchange is not None:
        # vLLM has kernels for prompts and others for decodes, which run in graphs.
        kernels = "deepep, prompts" if shape.role == "prefill" else "deepep"
        facts["derived.exchange"] = shape.exchange if shape.exchange != "deepep" else kernels
    if shape.largest_graph is not None:
        queries = 1 if shape.speculation is None else shape.speculation.queries
        facts["derived.graph_sequences"] = max(shape.largest_graph // queries, 1)
    drafted = _speculation_facts(setting, pool)
    return facts | _memory_facts(setting, pool) | drafted | _adapter_facts(setting, pool)


TWO_BATCHES = "vllm", "sglang"
"""Targets with an option for two micro batches that overlap."""


def two_batches(pool: PoolSetting) -> bool:
    """Whether a pool overlaps the exchange with experts with a second micro batch."""
    return pool.pool.overlap is not None and pool.pool.overlap.kind == TwoBatches.name


def _memory_facts(setting: ServingSetting, pool: PoolSetting) -> Facts:
    """Memory shares of the three engines, whose definitions differ, from the plan's bytes per device."""
    capacity, total = held_memory(setting, pool), setting.cluster.device.memory_bytes
    context = engine_of(pool.pool.engine, setting.folder, setting.where).context_bytes.value
    free = total - capacity.weights - capacity.activations - context
    return {
        "derived.static_share": round((capacity.weights + capacity.kv_bytes + capacity.outside) / total, 4),
        "derived.free_share": round(min(capacity.kv_bytes / free, 1.0), 4),
    }


def held_memory(setting: ServingSetting, pool: PoolSetting) -> ReplicaMemory:
    """Bytes on one device of a pool."""
    engine = engine_of(pool.pool.engine, setting.folder, setting.where)
    price = StepPrice(pool.model, setting.cluster, pool.pool, engine)
    options = pool.options
    return memory(
        price, options.token_budget, options.max_sequences, options.memory_share, options.block_tokens
    )


ADAPTER_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's --max-lora-rank (vllm/config/lora.py)."""


def _adapter_facts(setting: ServingSetting, pool: PoolSetting) -> Facts:
    """Adapters under the engines' option names: slots in device memory, and their rank."""
    adapters, resident = setting.deployment.adapters, pool.costs.adapters
    if adapters is None or resident is None:
        return {}
    facts: Facts = {"derived.adapters": True, "derived.adapter_rank": adapters.rank}
    facts["derived.adapter_slots"] = min(resident.room, adapters.count)
    fits = [rank for rank in ADAPTER_RANKS if rank >= adapters.rank]
    facts["derived.adapter_rank_of_vllm"] = fits[0] if fits else None
    facts["derived.adapter_modules"] = adapters.products
    return facts


DRAFT_METHODS: Mapping[Kind, tuple[str, str, str]] = {
    "draft-model": ("draft_model", "STANDALONE", "Draft_Target"),
    "eagle": ("eagle", "EAGLE", "Eagle"),
    "eagle3": ("eagle3", "EAGLE3", "Eagle3"),
    "medusa": ("medusa", "", "Medusa"),
    "mtp": ("mtp", "NEXTN", "MTP"),
    "ngram": ("ngram", "NGRAM", "NGram"),
    "hidden-transfer": ("", "", ""),
    "copied": ("", "", ""),
    "jacobi": ("", "", ""),
    "lookahead": ("", "", "Lookahead"),
}
"""Names of a kind of speculation in vLLM, SGLang and TensorRT-LLM; empty where the engine has none."""


CHAINED = "eagle", "eagle3", "mtp", "draft-model"
"""Kinds of which SGLang takes the steps and the tokens verified, not the tokens proposed."""


def _speculation_facts(setting: ServingSetting, pool: PoolSetting) -> Facts:
    """Speculation under the engines' option names; heads published beside the checkpoint by their name."""
    drafted = pool.pool.speculation
    if drafted is None:
        return {}
    method, algorithm, kind = DRAFT_METHODS[drafted.kind]
    name = drafted.draft if isinstance(drafted.draft, str) else "draft"
    if drafted.draft is None:
        # Heads inside the checkpoint, or tokens that are looked up, have no name.
        published = (names for kind, names in setting.model.draft_heads.items() if kind == drafted.kind)
        name = next(published, [""])[0]
    config = {"method": method, "model": name, "num_speculative_tokens": drafted.tokens}
    if not name:
        del config["model"]
    chained = drafted.kind in CHAINED
    facts = {
        "derived.speculation": json.dumps(config, separators=(",", ":")) if method else "",
        "derived.draft": name,
        "derived.draft_algorithm": algorithm,
        "derived.draft_type": kind,
        "derived.draft_tokens": drafted.tokens,
        "derived.draft_steps": drafted.tokens if chained else 0,
        "derived.draft_branches": int(chained and drafted.queries == drafted.tokens + 1),
        "derived.verified_tokens": drafted.queries if chained else drafted.tokens,
    }
    return {fact: value for fact, value in facts.items() if value}


OF_CHECKPOINT = {"--dtype": "bfloat16", "dtype": "bfloat16", "--kv-cache-dtype": "bfloat16"}
"""Options that a checkpoint in bf16 decides, beside SGLang's (`bf16`) and TensorRT-LLM's (`auto`) of KV."""


def pool_options(
    launcher: LauncherTable, setting: ServingSetting, pool: PoolSetting
) -> tuple[Options, list[str]]:
    """Options of one pool, and their gaps; facts of other engines are dropped."""
    facts = pool_facts(setting, pool)
    planned = {
        name: value
        for name, value in facts.items()
        if not name.startswith("derived.") or name in launcher.options
    }
    options, gaps = launcher.write(planned)
    shape = pool.pool
    if pool.model.checkpoint == shape.weights == "bf16":
        # An engine takes both from a checkpoint in 16 bits.
        options = {name: value for name, value in options.items() if OF_CHECKPOINT.get(name) != value}
    if pool.model.moe and shape.expert > 1 and launcher.target == "vllm" and shape.experts_cut > 1:
        gaps.append(f"pool.expert = {shape.expert}: expert parallelism is over all tensor x data ranks")
    if launcher.target == "trtllm" and shape.data > 1 and shape.tensor > 1:
        gaps.append(f"pool.data = {shape.data}: attention data parallelism is over all ranks or none")
    if shape.speculation is not None and shape.speculation.asynchronous:
        gaps.append("pool.speculation.asynchronous: drafts take turns with their target in this engine")
    if shape.speculation is not None and shape.speculation.budget is not None:
        gaps.append("pool.speculation.budget: this engine verifies as many proposals of each sequence")
    if pool.options.scheduler_options:
        gaps.append(f"options.scheduler_options: {launcher.version} has no option for it")
    return options, gaps


def deployment_gaps(setting: ServingSetting, target: str, placed: bool) -> list[str]:
    """Gaps of one engine process: replicas, router, scaler.

    Args:
        setting: of the question.
        target: engine that the files run.
        placed: whether the target starts replicas itself.
    """
    deployment = setting.deployment
    predicted = {
        pool.pool.engine: family_of(setting, pool)
        for pool in setting.pools
        if isinstance(pool.pool.engine, str)
    }
    gaps = [
        f"deployment.engine = {name}: the prediction is of {name}, these files run {target}"
        for name, family in predicted.items()
        if family != target
    ]
    if setting.scaler.name != "fixed":
        gaps.append(f"deployment.scaler = {setting.scaler.name}: the number of replicas is fixed here")
    for pool in setting.pools:
        path = f"deployment.pools.{pool.name}"
        if pool.cluster.name != setting.cluster.name:
            gaps.append(f"{path}.cluster = {pool.cluster.name}: the files are for {setting.cluster.name}")
        if pool.pool.clock_mhz is not None:
            gaps.append(f"{path}.clock_mhz: set it on the nodes (nvidia-smi -lgc {pool.pool.clock_mhz:g})")
        if pool.pool.graph_sizes:
            gaps.append(f"{path}.graph_sizes: {GRAPH_SIZES.get(target, 'set them by the engine')}")
        if pool.pool.power_cap_w is not None:
            gaps.append(f"{path}.power_cap_w: set it on the nodes (nvidia-smi -pl {pool.pool.power_cap_w:g})")
        if pool.scaler.name not in ("fixed", setting.scaler.name):
            gaps.append(f"{path}.scaler = {pool.scaler.name}: the number of replicas is fixed here")
        stated = {name: why for name, why in OF_FLEETS.items() if getattr(pool.pool, name) is not None}
        if two_batches(pool) and target in TWO_BATCHES:
            del stated["overlap"]
        gaps += [f"{path}.{name}: {why}" for name, why in stated.items()]
    if deployment.adapters is not None:
        gaps.append(f"deployment.adapters: name the adapters themselves: {ADAPTER_PATHS[target]}")
        if deployment.adapters.rank > ADAPTER_RANKS[-1] and target == "vllm":
            gaps.append(f"deployment.adapters.rank = {deployment.adapters.rank}: vLLM takes at most 512")
    if setting.attention:
        gaps.append("deployment.pools of role attention: no engine here computes attention elsewhere")
    if setting.encoders:
        gaps.append("deployment.pools of role encoder: start the engine's own encoder servers beside it")
    if deployment.migrate:
        gaps.append("deployment.router.migrate: no router of these engines moves running requests")
    if not placed:
        for pool in setting.pools:
            if pool.pool.replicas > 1:
                count = f"pools.{pool.name}.replicas = {pool.pool.replicas}"
                gaps.append(f"{count}: start the script once a replica; slurm, k8s and dynamo exports do")
        if needs_router(setting) and target == "trtllm" and not disaggregated(setting):
            gaps.append(f"deployment.router = {deployment.router}: trtllm-serve has no router of replicas")
    if len(setting.pools) > 1 and deployment.transfer != "layer-wise":
        gaps.append(f"deployment.transfer = {deployment.transfer}: the connector decides how KV travels")
    return gaps


def family_of(setting: ServingSetting, pool: PoolSetting) -> str:
    """The export target that runs a pool's engine; empty where there is none."""
    return FAMILIES.get(engine_of(pool.pool.engine, setting.folder, setting.where).engine, "")


def file_of(setting: ServingSetting, pool: PoolSetting) -> str:
    """Name of a pool's script."""
    return "serve.sh" if len(setting.pools) == 1 else f"serve-{label_of(setting, pool)}.sh"


def label_of(setting: ServingSetting, pool: PoolSetting) -> str:
    """A pool's name in small ASCII letters, digits and hyphens (RFC 1123), unique among the pools."""
    label = _label(pool.name)
    same = [other.name for other in setting.pools if _label(other.name) == label]
    return label if len(same) == 1 else f"{label}-{same.index(pool.name) + 1}"


def _label(name: str) -> str:
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return letters[:40].strip("-") or "pool"


def engine_scripts(question: ExportQuestion, launcher: LauncherTable, command: str) -> Export:
    """One script per pool, around an engine configured by flags.

    Args:
        question: about serving.
        launcher: table of the engine.
        command: starts the engine with ``"${ENGINE_ARGS[@]}"``.
    """
    setting = question.deployed()
    router, gaps = router_script(question, launcher.target)
    files, gaps = {}, [*deployment_gaps(setting, launcher.target, placed=False), *gaps]
    for pool in setting.pools:
        options, more = pool_options(launcher, setting, pool)
        gaps += [gap for gap in more if gap not in gaps]
        text = script_head(question, launcher, pool, (*gaps,), options)
        text += "\n" + array("ENGINE_ARGS", flags(options)) + "\n" + command
        files[file_of(setting, pool)] = text
    if router:
        files[ROUTER] = router
    return Export(files, tuple(gaps), NOTES, f"bash {next(iter(files))}")


def script_head(
    question: ExportQuestion,
    launcher: LauncherTable,
    pool: PoolSetting,
    gaps: tuple[str, ...],
    options: Options,
) -> str:
    """Comments and variables at the top of a pool's script."""
    text = "#!/usr/bin/env bash\n" + commented(header(question, launcher.version, gaps, NOTES))
    count = "1 GPU a replica" if pool.pool.devices == 1 else f"{pool.pool.devices} GPUs a replica"
    replicas = "1 replica" if pool.pool.replicas == 1 else f"{pool.pool.replicas} replicas"
    text += f"# One replica of the pool {one_line(pool.name)}: {count}, {pool.pool.replicas} in the plan.\n"
    text += (
        f"# Predicted with {one_line(str(pool.pool.engine))}, {replicas}, of {one_line(pool.model.name)}.\n"
    )
    text += commented([f"Stated though it may be the default, {why}." for why in launcher.repeats(options)])
    text += "set -euo pipefail\n\n"
    text += required("MODEL", f"checkpoint of {one_line(pool.model.name)}: path or Hugging Face name")
    text += "PORT=${PORT:-8000}\nNODE_RANK=${NODE_RANK:-0}\nMASTER_ADDR=${MASTER_ADDR:-localhost}\n"
    return text + "MASTER_PORT=${MASTER_PORT:-29500}\n"
