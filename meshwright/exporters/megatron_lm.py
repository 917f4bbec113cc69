"""Megatron-LM: a shell script around ``torchrun pretrain_gpt.py``."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from core.errors import InputError, shown
from core.parsing import parse_text
from hwmodels.cluster import Cluster
from hwmodels.generation import Generation
from meshwright.exporters import nemo_hydra
from meshwright.exporters.base import (
    Export,
    Exporter,
    ExportQuestion,
    Launch,
    array,
    commented,
    flags,
    header,
)
from meshwright.exporters.facts import check_derived, facts_of, question_gaps
from meshwright.exporters.host_state import EXPRESSED, MEGATRON, megatron_offload
from meshwright.exporters.layouts import ends_of, layout_of, lengths_of
from meshwright.exporters.megatron_model import model_facts
from meshwright.exporters.megatron_older import ENGINE, current, deepspeed_facts
from meshwright.exporters.shell import read_script
from meshwright.exporters.state_read import TAKEN, megatron_state
from meshwright.exporters.table import Facts, Options, integer, table, words_of
from simulator.layout.stages import Spread
from simulator.plan import Plan, Plans
from simulator.setting import Setting

TABLE = "megatron-lm-0.19.yaml"
NOTES = ("data (--data-path, or --mock-data to try the launch), tokenizer, learning rate, checkpoints",)
ROTARY_NOTE = "rotary base and scaling of the model (--rotary-base, --use-rope-scaling)"
FILE = "train.sh"
NODES = (
    '--nnodes "$NNODES" --nproc-per-node "$GPUS_PER_NODE" --node-rank "$NODE_RANK" '
    '--master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"'
)
"""Options of torchrun."""
LAUNCH = f"""\
torchrun {NODES} \\
    pretrain_gpt.py "${{MODEL_ARGS[@]}}" "${{PLAN_ARGS[@]}}" "${{TRAINING_ARGS[@]}}" "$@"
"""


def write(question: ExportQuestion) -> Export:
    """The script and its gaps."""
    scenario, plan = question.training()
    setting = scenario.setting
    launcher = table(TABLE)
    facts, gaps = megatron_facts(setting, plan, facts_of(scenario, plan, launcher))
    options, more = launcher.write(facts)
    state, lacking = megatron_offload(plan, MEGATRON)
    options |= state
    gaps = (*question_gaps(scenario, launcher.framework, EXPRESSED), *gaps, *more, *lacking)
    check_derived(setting, plan, computed(options, setting.cluster.devices))
    model = setting.model
    unsaid = model.position == "rope" and (model.numerics is None or model.numerics.rotary_base is None)
    notes = (*NOTES, ROTARY_NOTE) if unsaid else NOTES
    return Export({FILE: script(question, options, gaps, notes)}, gaps, notes, f"bash {FILE}")


def computed(options: Options, devices: int) -> dict[str, int]:
    """Degrees derived by Megatron-LM: ``world / (tensor x pipeline x context)`` replicas."""
    names = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    ranks = 1
    for name in names:
        ranks *= int(options.get(name, 1))
    data = devices // ranks
    step = data * int(options["--micro-batch-size"])
    whole_batches = int(options["--global-batch-size"]) // step
    return {"devices": ranks * data, "data": data, "global_batch": whole_batches * step}


def script(question: ExportQuestion, options: Options, gaps: tuple[str, ...], notes: tuple[str, ...]) -> str:
    """The launch script: model, plan and training as bash arrays."""
    scenario, _ = question.training()
    launcher, cluster = table(TABLE), scenario.setting.cluster
    of_model = {entry.option for field, entry in launcher.options.items() if field.startswith("model.")}
    of_model |= {
        name
        for field, entry in launcher.options.items()
        if field.startswith("model.") or field in MODEL_FACTS
        for choice in entry.choices
        for name in choice.sets
    }
    of_model |= {launcher.options[field].option for field in MODEL_FACTS}
    of_training = {"--seq-length", "--global-batch-size", "--bf16", "--fp16"}
    of_training |= {name for name in options if name.startswith(("--fp8", "--fp4"))}
    parts = {"MODEL_ARGS": of_model, "TRAINING_ARGS": of_training}
    parts["PLAN_ARGS"] = set(options) - of_model - of_training
    text = "#!/usr/bin/env bash\n" + commented(header(question, launcher.version, gaps, notes))
    text += (
        "# Run on every node from Megatron-LM's folder; NODE_RANK and MASTER_ADDR say which node this is.\n"
    )
    text += "set -euo pipefail\n\n" + node_variables(cluster)
    if needs_one_connection(options, cluster.device.generation):
        text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    text += kernel_variables(options)
    for name in ("MODEL_ARGS", "PLAN_ARGS", "TRAINING_ARGS"):
        part_options = {key: value for key, value in options.items() if key in parts[name]}
        text += "\n" + array(name, flags(part_options))
    return text + "\n" + LAUNCH


def node_variables(cluster: Cluster) -> str:
    """Shell variables of a job over whole nodes, each of which the environment may set."""
    nodes, per_node = cluster.nodes_for(cluster.devices), min(cluster.devices_per_node, cluster.devices)
    text = f"NNODES=${{NNODES:-{nodes}}}\nGPUS_PER_NODE=${{GPUS_PER_NODE:-{per_node}}}\n"
    text += "NODE_RANK=${NODE_RANK:-0}\nMASTER_ADDR=${MASTER_ADDR:-localhost}\n"
    return text + "MASTER_PORT=${MASTER_PORT:-29500}\n"


def kernel_variables(options: Options) -> str:
    """Shell variables that choose kernels: Transformer Engine fuses the grouped MLP where one asks it to."""
    names = "--use-transformer-engine-op-fuser", "model.use_transformer_engine_op_fuser"
    fused = any(options.get(name) is True for name in names)
    return "export NVTE_CUTEDSL_FUSED_GROUPED_MLP=1\n" if fused else ""


def needs_one_connection(options: Options, generation: Generation) -> bool:
    """Whether Megatron-LM asserts CUDA_DEVICE_MAX_CONNECTIONS=1 (training/arguments.py: validate_args)."""
    parallel = (
        options.get("--tensor-model-parallel-size", 1) > 1 or options.get("--context-parallel-size", 1) > 1
    )
    sharded = "--use-megatron-fsdp" in options or "--overlap-moe-expert-parallel-comm" in options
    return parallel and not sharded and not generation.many_connections


MODEL_FACTS = (
    "derived.grouped_heads",
    "derived.qkv_bias",
    "derived.latent",
    "derived.window",
    "derived.layer_frequency",
    "derived.shared_width",
    "derived.tokenizer",
)


def megatron_facts(setting: Setting, plan: Plan, facts: Facts) -> tuple[Facts, list[str]]:
    """Facts under Megatron's configuration keys, and facts without a key."""
    shape, gaps = model_facts(setting.model, facts)
    options = {name: value for name, value in facts.items() if not name.startswith("model.")} | shape
    lengths = Spread.of(setting, Plans.of(plan)).lengths if plan.pipeline > 1 else [1.0]
    uneven = len(set(lengths)) > 1
    if uneven and plan.schedule in ("1f1b", "interleaved"):
        options["derived.layout"] = layout_of(setting, plan)
    elif plan.virtual_pipeline > 1:
        options["derived.chunks"] = plan.virtual_pipeline
    if plan.virtual_pipeline > 1 and plan.pipeline > 1:
        options["derived.interleaved_sends"] = plan.overlap_pipeline
    elif plan.pipeline > 1 and plan.overlap_pipeline != setting.framework.defaults.get("overlap_pipeline"):
        gaps.append(
            f"plan.overlap_pipeline = {str(plan.overlap_pipeline).lower()}: a choice under interleaving only"
        )
    if options.get("plan.overlap_parameters") and not plan.overlap_gradients:
        options["plan.overlap_parameters"] = False
        gaps.append("plan.overlap_parameters = true: needs overlap_gradients, which the plan has not")
    if options.get("derived.interleaved_sends") is False and plan.pipeline == 2:
        options["derived.interleaved_sends"] = True
        gaps.append("plan.overlap_pipeline = false: interleaving over 2 stages overlaps its sends")
    if plan.zero and plan.shard_group and plan.shard_group != plan.data * plan.context:
        options["derived.optimizer_instances"] = plan.data * plan.context // plan.shard_group
    reduced = options.pop("plan.reduce_bytes", None)
    if reduced not in (None, setting.of(plan).choices.gradient_bytes):
        gaps.append(f"plan.reduce_bytes = {reduced}: gradients are reduced as they are accumulated")
    modules = options.pop("plan.recompute_modules", None)
    if plan.recompute == "selective" and modules:
        options["derived.recompute_modules"] = list(modules)
    if setting.mtp_layers == 0 and (extra := options.pop("model.mtp_layers", 0)):
        trains = f"the prediction trains none; add --mtp-num-layers {extra} to train them"
        gaps.append(f"model.mtp_layers = {extra}: {trains}")
    return options, gaps


MOST_LAYERS = 4096


def read(launch: Launch, where: str) -> Facts:
    """Facts of a launch, with Megatron's own derivations undone.

    Raises:
        InputError: a value that is not a number, or a layout that plans do not express.
    """
    facts, _ = table(TABLE).read(launch.options)
    facts |= megatron_state(launch.options, MEGATRON, where)
    if ENGINE in launch.options:
        facts = deepspeed_facts(facts, launch.options, table(TABLE), where)
    check_optimizer(launch.options, where)
    facts |= recomputed(launch.options, facts, where)
    if PurePath(str(launch.options.get("--vocab-file", ""))).name in VOCABULARIES:
        facts.setdefault("model.vocabulary", VOCABULARIES[PurePath(launch.options["--vocab-file"]).name])
    if "pretrain_bert" in launch.script:
        facts["workload.causal"] = False
    return undone(facts, launch, where)


VOCABULARIES = {"gpt2-vocab.json": 50257}
"""Tokens of published vocabularies (OpenAI's GPT-2: encoder.json), by the file's name."""
OPTIMIZERS = ("adam", "adamw")


def check_optimizer(options: Options, where: str) -> None:
    """Refuse optimizers with other state than Adam's.

    Raises:
        InputError: such an optimizer.
    """
    name = str(options.get("--optimizer", "adam"))
    if name.lower() not in OPTIMIZERS:
        problem = f"{shown(name)} has other state than Adam, which is what predictions count"
        raise InputError(f"{problem}; leave the option out to ask for Adam", f"{where}: --optimizer")


def recomputed(options: Options, facts: Facts, where: str) -> Facts:
    """Recomputation by ``--recompute-method``: of all layers, or refused where it is of a part of them.

    ``uniform N`` keeps the input of every N-th layer and computes all layers again, as 1 does, with less kept
    (transformer/transformer_block.py: _checkpointed_forward); ``block N`` computes the first N of each stage.

    Raises:
        InputError: a part of a stage's layers is computed again.
    """
    if str(options.get("--recompute-granularity")) != "full":
        return {}
    layers, stages = (integer(facts, name, where) or 1 for name in ("model.layers", "plan.pipeline"))
    count = integer(
        {"count": options.get("--recompute-num-layers", 1)}, "count", f"{where}: --recompute-num-layers"
    )
    if str(options.get("--recompute-method")) == "block" and (count or 1) * stages < layers:
        problem = (
            f"layers of a stage: {count} of {layers // stages} would be computed again, which no plan states"
        )
        ways = "--recompute-method uniform (all layers), or no --recompute-granularity (none)"
        raise InputError(f"{problem}; ask for {ways}", f"{where}: --recompute-num-layers")
    return {"plan.recompute": "full", TAKEN: [*facts.get(TAKEN, ()), "--recompute-granularity"]}


def undone(facts: Facts, launch: Launch, where: str) -> Facts:
    """Facts of a question from Megatron's configuration keys.

    Raises:
        InputError: as `read`.
    """
    stages = integer(facts, "plan.pipeline", where) or 1
    _read_chunks(facts, stages, where)
    _read_model(facts, where)
    instances = integer(facts, "derived.optimizer_instances", where)
    if instances and launch.devices:
        ranks = (integer(facts, "plan.tensor", where) or 1) * stages
        facts["plan.shard_group"] = launch.devices // ranks // instances
    if facts.get("plan.zero", 0) == 0:
        facts.pop("plan.overlap_parameters", None)
    modules = words_of(facts.pop("derived.recompute_modules", ""))
    if facts.get("plan.recompute") == "selective" and modules not in ([], ["core_attn"]):
        facts["plan.recompute_modules"] = modules
    if facts.get("plan.grouped_launches") == "per-expert":  # what a launch without the option runs
        del facts["plan.grouped_launches"]
    if "plan.gradient_bytes" in facts:
        facts["plan.reduce_bytes"] = facts["plan.gradient_bytes"]
    sends = facts.pop("derived.interleaved_sends")
    if facts.get("plan.virtual_pipeline", 1) > 1:
        facts["plan.overlap_pipeline"] = sends
    facts.pop("plan.schedule")
    return facts


def _read_chunks(facts: Facts, stages: int, where: str) -> None:
    """Chunks and layers of the end stages, from any of the options."""
    layers = integer(facts, "model.layers", where)
    chunks = integer(facts, "derived.chunks", where) or 1
    per_chunk = integer(facts, "derived.layers_per_chunk", where)
    if per_chunk and layers and chunks == 1:
        chunks = layers // (stages * per_chunk)
    if layout := facts.get("derived.layout"):
        lengths = lengths_of(str(layout), f"{where}: --pipeline-model-parallel-layout")
        chunks = max(len(lengths) // stages, 1)
        first, last = ends_of(lengths, chunks, f"{where}: --pipeline-model-parallel-layout")
    else:
        first, last = (integer(facts, f"derived.{end}_layers", where) or 0 for end in ("first", "last"))
        both = bool(facts.get("derived.embedding_as_layer")), bool(facts.get("derived.loss_as_layer"))
        if layers and any(both):
            share = (layers + sum(both)) // stages
            first, last = share - both[0], share - both[1]
            chunks = share // per_chunk if per_chunk else chunks
    if chunks > 1:
        facts["plan.virtual_pipeline"] = chunks
    for end, count in (("first", first), ("last", last)):
        if count:
            facts[f"plan.{end}_stage_layers"] = count


def _read_model(facts: Facts, where: str) -> None:
    """Shape that Megatron derives: key-value heads, windows, expert layers."""
    if facts.get("derived.latent"):
        for name in ("model.kv_heads", "model.head_dim", "model.qk_norm"):  # its norms are of the latents
            facts.pop(name, None)
    elif not facts.get("derived.grouped_heads"):
        facts.pop("model.kv_heads", None)
    hidden = integer(facts, "model.hidden", where)
    if hidden and "model.feed_forward" not in facts:
        gated = facts.get("model.activation") == "swiglu"  # training/arguments.py: validate_args
        facts["model.feed_forward"] = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    if "model.bias" in facts:
        facts["model.qkv_bias"] = bool(facts["model.bias"] or facts.get("derived.qkv_bias"))
    if window := facts.get("derived.window"):
        text = str(window).replace("(", "").split(",")[0].strip()
        facts["model.sliding_window"] = (
            integer({"window": text}, "window", f"{where}: --window-size") or 0
        ) + 1
    if "model.moe.experts" not in facts:
        for name in [name for name in facts if name.startswith("model.moe.")]:
            del facts[name]
        return
    facts.setdefault("model.moe.top_k", 2)
    facts.setdefault("model.moe.feed_forward", facts.get("model.feed_forward"))
    if width := integer(facts, "derived.shared_width", where):
        facts |= {"model.moe.shared_experts": 1, "model.moe.shared_feed_forward": width}
    layers = integer(facts, "model.layers", where) or 0
    frequency = facts.get("derived.layer_frequency")
    if frequency is not None and layers:
        _read_frequency(facts, expert_layers(str(frequency), layers, f"{where}: --moe-layer-freq"))


def _read_frequency(facts: Facts, pattern: list[int]) -> None:
    """Leading dense layers and the period of expert layers, or the layers that have experts."""
    first = pattern.index(1) if 1 in pattern else len(pattern)
    if all(pattern[first:]):
        facts["model.moe.first_dense_layers"] = first
        return
    every = first + 1
    if pattern == [int((index + 1) % every == 0) for index in range(len(pattern))]:
        facts["model.moe.every"] = every
    else:
        facts["model.moe.places"] = [layer for layer, has_experts in enumerate(pattern) if has_experts]


def expert_layers(text: str, layers: int, where: str) -> list[int]:
    """Which layers have experts (1), from a number or a pattern such as ``([0]*3+[1]*58)``.

    Raises:
        InputError: it is neither, or of another length than the model.
    """
    if text.isdigit() and len(text) < 5:
        every = int(text)
        return [int(index % max(every, 1) == 0) for index in range(layers)]
    try:
        pattern = _evaluated(ast.parse(text.strip()[:2000], mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        raise InputError(
            f"must be a list of layers as Python, for instance ([0]*3+[1]*58); found {shown(text)}", where
        ) from None
    if not isinstance(pattern, list) or len(pattern) != layers:
        length = len(pattern) if isinstance(pattern, list) else pattern
        raise InputError(f"must be a pattern of {layers} layers, as the model has; found {length}", where)
    return pattern


def _evaluated(node: ast.expr) -> Any:
    """Evaluate lists of 0 and 1, their sums and multiples.

    Raises:
        ValueError: something else, or too long.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value <= MOST_LAYERS:
        return int(node.value)
    if isinstance(node, ast.List):
        return [_evaluated(part) for part in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            layers = left + right
        elif isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            layers = left * right if len(left) * right <= MOST_LAYERS else None
        else:
            layers = None
        if layers is not None and len(layers) <= MOST_LAYERS:
            return layers
    raise ValueError


def parse(text: str, where: str, path: Path | None) -> Launch:
    """The launch of a script, a command line, or a recipe (YAML with the options under ``ARGS``)."""
    if path is None or path.suffix not in (".yaml", ".yml"):
        launch = read_script(text, where)
        if nemo_hydra.is_hydra(launch):
            return current(nemo_hydra.megatron_options(launch, where), path, where)
        launch = current(launch, path, where)
        bert = "pretrain_bert" in launch.script
        notes = ("masks no keys (BERT); its pooler and second loss are not modelled",) if bert else ()
        return replace(launch, notes=(*launch.notes, *notes))
    written = parse_text(text, where)
    if nemo_hydra.is_recipe(written):
        return current(nemo_hydra.megatron_options(Launch(nemo_hydra.flattened(written)), where), path, where)
    arguments = written.get("ARGS", written) if isinstance(written, dict) else None
    if not isinstance(arguments, dict):
        raise InputError(f"a mapping of options is needed, found {shown(written)}", where)
    options = {
        f"--{name.removeprefix('--').replace('_', '-')}": " ".join(map(str, value))
        if isinstance(value, list)
        else value
        for name, value in arguments.items()
        if value is not None and value is not False
    }
    devices = re.search(r"(?:^|_)(\d{1,6})GPUs?_", path.name, re.IGNORECASE)
    if devices is None:
        return Launch(options)
    return Launch(options, int(devices[1]), (f"{devices[1]} GPUs are read from the file's name",))


EXPORTER = Exporter(
    name="megatron-lm",
    title="shell script for Megatron-LM's pretrain_gpt.py",
    kinds=("training",),
    write=write,
    read=read,
    parse=parse,
    table=TABLE,
    hints=(
        "--tensor-model-parallel-size",
        "--num-layers",
        "--micro-batch-size",
        "pretrain_",
        "\n  tensor_model_parallel_size:",
        *nemo_hydra.HINTS,
    ),
)
