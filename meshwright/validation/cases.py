"""Published measurements, read from CSV rows into settings and plans that the simulator can predict.

A row states a configuration and its step time. Missing values take the framework's documented default; a
row without a value and without a default is skipped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from core.errors import MeshwrightError, UnknownNameError
from core.loading import build
from core.records import record
from hwmodels.cluster import Cluster, clusters, usual_cluster
from hwmodels.levels import Fabric
from meshwright.validation.micro_batches import least_recomputed, tuned
from meshwright.validation.row_model import read_model
from meshwright.validation.rows import (
    PublishedRow,
    SkippedRow,
    conventions,
    matches,
    read_rows,
    rule_of,
    spelled,
)
from meshwright.validation.state import adapters, offloaded
from meshwright.validation.words import filled
from simulator.frameworks import Framework, frameworks
from simulator.layout.stages import FIRST, LAST
from simulator.levers import LEVERS
from simulator.models import Model
from simulator.ops.counts import attention_parameters, dense_mlp_parameters
from simulator.plan import Plan
from simulator.recipes import recipes
from simulator.schedules import schedules
from simulator.setting import Setting
from simulator.training.memory import PEAK_COUNTS, PeakCount
from simulator.workload import Training

SWITCHES: dict[str, Any] = {"true": True, "false": False}
COLUMN_OF = {"attention": "attention_kernel", "cross_entropy": "loss", "overlap_tensor": "tensor_overlap"}
"""Columns of plan fields that have another name."""
OVERLAPS = "overlap_expert", "overlap_tensor", "overlap_gradients", "overlap_parameters"
STAGES = {"first stage": FIRST, "last stage": LAST}
"""Classes of stages by the words of the column ``peak_of``: the source prints the peak of one rank of it."""
PEAK_UNITS = {"": 2.0**30, "GB": 1e9}
"""Bytes of the unit of a printed peak (column ``peak_unit``)."""
PART_OF_LAYERS = (
    r"(?:block|part|partial)\b\D*(\d+) (?:of|/) (\d+)|(?:selective \()?every (?:2nd|second|other)"
)
"""Words of a recomputation of whole layers in part."""
UNEVEN = r"last stage (\d+) layers, others (\d+)"
"""Words of a pipeline whose last stage has fewer layers."""
NO_LAYERS = -1
"""Spelling of an unset value in plans."""


@record()
class TrainingCase:
    """One measured run and the question it answers."""

    case_id: str
    gpu: str
    framework: str
    precision: str
    experts: bool
    setting: Setting
    plan: Plan
    measured_step_s: float | None
    measured_peak_bytes: float | None
    peak_of: str = ""
    """Whose peak was measured: that of a stage (``STAGES``), else the fullest device's."""
    peak_counts: PeakCount = "device"
    """What the measured peak counts: all of the device (nvidia-smi), or what torch's allocator reserved or
    allocated."""
    repeated: float | None = None
    """Share of the layers that are recomputed whole, where it is neither none nor all; the plan has the
    nearer of these."""
    assumed: tuple[str, ...] = ()
    """Missing values of the row set by defaults; "network": of a run on several nodes."""

    @property
    def is_guess(self) -> bool:
        """Whether the row lacks the network of its nodes, or its micro batch."""
        return "network" in self.assumed or "micro batch" in self.assumed


def read_case(values: dict[str, str], where: str) -> TrainingCase:
    """Turn one row into a case.

    Raises:
        Skipped: the row does not determine the configuration.
        InputError: the row is malformed.
    """
    stated = PublishedRow(values, where)
    for rule in conventions()["corrections"]:
        if matches(stated, rule["where"]):
            values = values | rule.get("sets", {})
            for name, factor in rule.get("scales", {}).items():
                values = values | {name: str((stated.number(name) or 0.0) * factor)}
    row = filled(PublishedRow(values, where))
    values = row.values
    gpus, framework_text = row.need("n_gpus"), row.text("framework")
    if not framework_text:
        raise SkippedRow("framework not stated")
    place = offloaded(row)
    for rule in conventions()["own_algorithms"]:
        if re.search(rule["match"], framework_text):
            raise SkippedRow(f"framework {framework_text!r}: {rule['reason']}")
    model = read_model(row)
    # Spellings are keyed by the catalogue's name of a model, not by the row's.
    named = PublishedRow({**values, "model_name": f"{row.text('model_name')} {model.name}"}, where)
    row.values = spelled(named)
    framework = _framework(row, named.text("recipe"))
    if not row.text("precision"):
        row.assume("precision")
    precision = _precision(row.text("precision", "bf16"))
    training = build(
        Training,
        {
            "seq_len": row.need("seq_len"),
            "global_batch": row.need("global_batch"),
            "precision": precision,
            "expert_load": _expert_load(row),
            **adapters(row, model, precision),
        },
        where,
    )
    setting = Setting(model, _cluster(row, gpus), training, framework)
    plan = build(Plan, {**_plan(row, gpus, model, framework).model_dump(), **place}, where)
    if row.text("recompute_kind") == "least":
        plan = least_recomputed(setting, plan)
    chunks, stated = _open_chunks(row, model, plan), row.text("micro_batch")
    if not stated and training.global_batch > plan.data:
        row.assume("micro batch")
    if chunks or not stated:
        plan = tuned(setting, plan, chunks, plan.micro_batch if stated else None)
    peak = row.number("peak_memory_gib")
    return TrainingCase(
        case_id=row.text("case_id"),
        gpu=row.text("gpu"),
        framework=framework_text,
        precision=precision,
        experts=model.moe is not None,
        setting=setting,
        plan=plan,
        measured_step_s=row.number("derived_step_time_s") or None,
        measured_peak_bytes=peak * PEAK_UNITS[row.text("peak_unit")] if peak else None,
        peak_of=row.text("peak_of"),
        peak_counts=_peak_counts(row),
        repeated=_repeated(row),
        assumed=tuple(row.assumed),
    )


def _framework(row: PublishedRow, stated: str) -> Framework:
    """The release of a row, with the partial plan of its recipe.

    A recipe that the row's words mean, but of another release, decides nothing: the row stays predictable.
    """
    framework = frameworks.get(rule_of(row)["release"], row.where)
    name = row.text("recipe")
    if not name or (not stated and recipes.get(name).framework != framework.name):
        return framework
    return recipes.get(name, row.where).applied(framework, f"{row.where}: recipe")


def _levers(row: PublishedRow, framework: Framework) -> dict[str, Any]:
    """What the row's columns choose: plan fields beyond its degrees."""
    levers: dict[str, Any] = {}
    # Code with unfused attention came with at most FlashAttention-2. A recipe knows better than this column.
    usual = frameworks.get(framework.name).defaults.get("attention")
    if row.text("flash_attention", "0") != "0" and usual == "unfused":
        levers["attention"] = "flash-2"
    for name in (*LEVERS, *OVERLAPS, "context_algorithm"):
        text = row.text(COLUMN_OF.get(name, name), row.text(name))
        if text and name != "recompute_modules":
            levers[name] = SWITCHES.get(text.lower(), int(text) if text.isdigit() else text)
    if modules := _modules(row):
        levers["recompute_modules"] = modules
    return levers


def _peak_counts(row: PublishedRow) -> PeakCount:
    """What the printed peak counts; the whole device where nothing says it."""
    text = row.text("peak_counts", "device")
    if text not in PEAK_COUNTS:
        raise SkippedRow(f"peak_counts {text!r} is none of {', '.join(PEAK_COUNTS)}")
    return text


def _precision(text: str) -> str:
    """The number format of the linear layers: a narrow format if named, else the first format named."""
    lowered = re.sub("float(?=[0-9])", "fp", text.lower().replace("bfloat", "bf"))
    words = re.search("nvfp4|mxfp8|fp8", lowered) or re.search("bf16|fp16|tf32|fp32", lowered)
    if not words:
        raise SkippedRow(f"precision {text!r} is not known")
    return words.group()


def _expert_load(row: PublishedRow) -> float:
    """Load of the busiest expert-parallel rank over the mean: as stated, or by the row's words."""
    stated = row.number("expert_load")
    if stated is not None:
        return stated
    for rule in conventions()["expert_loads"]:
        if matches(row, rule["where"]):
            row.assume("expert load")
            return rule["load"]
    return 1.0


def _cluster(row: PublishedRow, gpus: int) -> Cluster:
    gpu = row.text("gpu")
    words = " ".join(row.text(name) for name in ("system_name", "interconnect", "notes"))
    systems = (rule for rule in conventions()["systems"] if gpu == rule["gpu"])
    named = next((rule["cluster"] for rule in systems if re.search(rule["match"], words)), None)
    named = named or conventions()["clouds"].get(row.text("fabric"), {}).get(gpu)
    try:
        cluster = clusters.get(named) if named else usual_cluster(gpu)
    except UnknownNameError:
        raise SkippedRow(f"no cluster with {gpu!r} is known") from None
    for variant in conventions()["variants"]:
        if gpu == variant["gpu"] and re.search(variant["match"], words):
            cluster = cluster.with_device(variant["device"])
    per_node = row.integer("gpus_per_node", cluster.devices_per_node)
    nic = row.number("nic_gbps_per_node")
    many = gpus > max(per_node, cluster.domain if cluster.domain > cluster.devices_per_node else 0)
    if many and nic is None:
        row.assume("network")
    if per_node not in (cluster.devices_per_node, cluster.domain):
        cluster = cluster.with_node(per_node)
    if nic:
        stated = row.text("fabric")
        fabric = stated if stated in get_args(Fabric) else cluster.network.fabric
        rules = (rule for rule in conventions()["networks"] if matches(row, rule["where"]))
        calibration = next((rule["calibration"] for rule in rules), None)
        cluster = cluster.with_network(nic_gbps_per_node=nic, fabric=fabric, calibration=calibration)
    return cluster.resized(gpus)


def _plan(row: PublishedRow, gpus: int, model: Model, framework: Framework) -> Plan:
    defaults = {name: value for name, value in framework.defaults.items() if name not in LEVERS}
    tensor, pipeline = row.need("tp"), row.need("pp")
    if model.moe and tensor > 1 and not row.text("etp") and "expert_tensor" not in defaults:
        row.assume("tensor degree of experts")
    context, chunks = row.integer("cp", 1), _chunks(row, model, pipeline)
    if gpus % (tensor * pipeline * context):
        raise SkippedRow(f"tp x pp x cp = {tensor * pipeline * context} does not divide {gpus} GPUs")
    # A blank means the framework's default.
    stated = row.text("sequence_parallel", str(int(defaults.get("sequence_parallel", False))))
    sequence = tensor > 1 and stated == "1"
    data = {
        **defaults,
        **_levers(row, framework),
        "tensor": tensor,
        "pipeline": pipeline,
        "context": context,
        "data": gpus // (tensor * pipeline * context),
        "virtual_pipeline": chunks if pipeline > 1 else 1,
        "expert": row.integer("ep", 1),
        "expert_tensor": row.integer("etp", defaults.get("expert_tensor", 1)),
        "micro_batch": row.integer("micro_batch", 1),
        "sequence_parallel": sequence,
        "schedule": _schedule(row, pipeline, chunks),
        "recompute": _recompute(row, defaults),
        **_sharding(row, tensor, gpus // (tensor * pipeline), defaults),
        **_uneven(row, model, pipeline, chunks),
    }
    plan = build(Plan, data, row.where)
    if row.need("global_batch") % (plan.data * plan.micro_batch):
        raise SkippedRow(
            f"global batch does not divide by data x micro batch = {plan.data * plan.micro_batch}"
        )
    return plan


def _chunks(row: PublishedRow, model: Model, pipeline: int) -> int:
    """Virtual stages per rank; "max" is one layer per chunk, where the ends may be one layer short."""
    if not row.text("vpp").startswith("max"):
        return row.integer("vpp", 1)
    return -(-model.layers // pipeline)


def _open_chunks(row: PublishedRow, model: Model, plan: Plan) -> list[int]:
    """Virtual stages per rank to choose from, more than one where the row's schedule is interleaved.

    None where the row states them, or neither an interleaved schedule nor that it leaves the schedule open.
    """
    schedule = _stated_schedule(row)
    interleaved = schedule.startswith("interleaved")
    if plan.pipeline == 1 or row.text("vpp") or not (interleaved or "not stated" in schedule):
        return []
    row.assume("virtual stages")
    # Where embedding and loss stand for a layer each, they fill a slot of the first and of the last chunk.
    ends = 2 if plan.first_stage_layers > 0 and plan.last_stage_layers > 0 else 0
    slots = (model.layers + ends) // plan.pipeline
    least = 2 if interleaved and "not stated" not in schedule else 1
    return [count for count in range(least, slots + 1) if slots % count == 0]


def _schedule(row: PublishedRow, pipeline: int, chunks: int) -> str:
    if pipeline == 1:
        return "1f1b"
    named = _named_schedule(row)
    if named not in (None, "interleaved"):
        return named
    text = row.text("schedule") or named or row.text("pp_schedule").lower().split(" (")[0]
    if chunks > 1:
        return "interleaved"
    if text in ("", "none") or text.startswith("interleaved"):
        return "1f1b"
    if text not in schedules:
        raise SkippedRow(f"pipeline schedule {text!r} is not known")
    return text


def _stated_schedule(row: PublishedRow) -> str:
    """The name that the conventions give a row's words for its schedule, or the words."""
    return _named_schedule(row) or row.values.get("pp_schedule", "").lower()


def _named_schedule(row: PublishedRow) -> str | None:
    stated = row.text("pp_schedule").lower()
    rules = conventions()["schedules"]
    return next((rule["schedule"] for rule in rules if re.search(rule["match"], stated)), None)


def _recompute(row: PublishedRow, defaults: dict[str, Any]) -> str:
    if not row.text("activation_recompute") and "recompute" not in defaults:
        row.assume("recomputation")
    usual = defaults.get("recompute", conventions()["defaults"]["recompute"])
    text = row.text("activation_recompute", usual).lower()
    if _modules(row):
        return "selective"
    if (share := _repeated(row)) is not None:
        # A plan repeats whole layers in all or in none.
        row.assume("recomputation")
        return "full" if share > 0.5 else "none"
    if rule := _recompute_rule(text):
        return rule["recompute"]
    raise SkippedRow(f"activation_recompute {text!r} is not known")


def _repeated(row: PublishedRow) -> float | None:
    """Share of the layers that a row recomputes whole; none where it does not state a part of them."""
    text = row.text("activation_recompute").lower()
    if _modules(row) or not (part := re.match(PART_OF_LAYERS, text)):
        return None
    return min(int(part[1]) / int(part[2]), 1.0) if part[1] and int(part[2]) else 0.5


def _recompute_rule(text: str) -> dict[str, Any] | None:
    rules = conventions()["recomputation"]
    return next((rule for rule in rules if re.search(rule["match"], text)), None)


def _modules(row: PublishedRow) -> list[str]:
    """Modules that a row's recomputation names: "selective" of 2025 is a list of them."""
    if listed := row.text("recompute_modules"):
        return [name.strip() for name in listed.split(",")]
    text = row.text("activation_recompute").lower()
    named = re.match(r"(?:modules: |selective \()(.*)", text)
    words = conventions()["modules"]
    if named:
        return [words[word] for word in re.split(r"[,/)]\s*", named[1]) if word in words]
    return (_recompute_rule(text) or {}).get("modules", [])


def _sharding(row: PublishedRow, tensor: int, ranks: int, defaults: dict[str, Any]) -> dict[str, int]:
    """ZeRO stage, and the ranks of one copy where a row says "sharded over N ranks" or HSDP: those of a node.

    Args:
        row: the row.
        tensor: degree of tensor parallelism.
        ranks: that share a stage's shards of tensors.
        defaults: of the framework.
    """
    if not row.text("zero_stage"):
        row.assume("sharding")
    text = row.text("zero_stage", str(defaults.get("zero", 0))).lower()
    if re.search("hsdp|hybrid", text):
        per_node = max(row.integer("gpus_per_node", 8) // tensor, 1)
        return {"zero": 3, "shard_group": min(per_node, ranks)}
    stage = re.match(r"(?:zero[- ]?)?(?:stage[- ]?)?([0-3])\b", text)
    words = {"fsdp": 3, "dist": 1, "none": 0, "ddp": 0}
    named = next((value for word, value in words.items() if word in text), None)
    if not stage and named is None:
        raise SkippedRow(f"zero_stage {text!r} is not known")
    group = re.search(r"sharded over (\d+) ranks", text)
    stages = int(stage[1]) if stage else named or 0
    least = any(matches(row, where) for where in conventions()["shards_states"])
    return {"zero": max(stages, int(least)), "shard_group": int(group[1]) if group else 0}


def _uneven(row: PublishedRow, model: Model, pipeline: int, chunks: int) -> dict[str, int]:
    """Ends of the pipeline where embedding and loss each stand for a layer (Llama 3's 126, ZB's kp-2).

    Or where "layer redistribution" takes layers from the last stage, or the notes say how many it has.
    """
    if pipeline > 1 and (stated := re.search(UNEVEN, row.text("notes"))):
        return {"first_stage_layers": int(stated[2]), "last_stage_layers": int(stated[1])}
    if pipeline > 1 and "layer redistribution" in row.text("pp_schedule"):
        return {"last_stage_layers": balanced_last_stage(model, row.need("seq_len"), pipeline) or NO_LAYERS}
    slots = pipeline * chunks
    if pipeline > 1 and model.layers % slots and (model.layers + 2) % slots == 0:
        share = (model.layers + 2) // pipeline - 1
        return {"first_stage_layers": share, "last_stage_layers": share}
    return {}


def balanced_last_stage(model: Model, seq_len: int, pipeline: int) -> int:
    """Layers of the last stage that keep the longest stage shortest, the largest such number.

    The output layer counts as the whole number of layers nearest to its floating-point operations (Narayanan
    et al. 2021, appendix), which gives what the artifact of Yeung et al. 2025 ran its baseline with.
    """
    weights = attention_parameters(model) + dense_mlp_parameters(model)
    output = round(model.hidden * model.vocabulary / (weights + 2 * seq_len * model.hidden))

    def longest(last: int) -> float:
        return max(last + output, -(-(model.layers - last) // (pipeline - 1)))

    return min(range(model.layers // pipeline, -1, -1), key=longest)


def read_cases(path: Path) -> tuple[list[TrainingCase], list[tuple[str, str]]]:
    """Read all cases of a CSV, and the rows that were skipped with their reasons."""
    cases, skipped = [], []
    for number, values in enumerate(read_rows(path), start=2):
        try:
            cases.append(read_case(values, f"{path}: line {number}"))
        except SkippedRow as reason:
            skipped.append((values["case_id"], str(reason)))
        except MeshwrightError as error:
            skipped.append((values["case_id"], str(error)))
    return cases, skipped
