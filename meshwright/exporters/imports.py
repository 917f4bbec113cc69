"""Launch files as scenarios: options become facts, facts become a model, a workload and a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.loading import build, exists, looks_like_path
from core.parsing import no_such_file, read_text
from meshwright.exporters import TARGETS, exporter
from meshwright.exporters.base import Exporter, Imported, Launch
from meshwright.exporters.deepspeed import AUTO
from meshwright.exporters.facts import chosen_levers, moot, shape
from meshwright.exporters.ms_swift import megatron_command
from meshwright.exporters.state_read import TAKEN
from meshwright.exporters.table import Facts, Options, integer, same, table
from simulator.models import Model, models
from simulator.plan import Plan
from simulator.rules import insisted
from simulator.scenario import Scenario, make_scenario
from simulator.workload import Training

MOST_DIGITS = 12
BARE_NUMBERS = re.compile(r"-?\d[\d_]{0,40}")


def read_launch(
    source: str,
    *,
    target: str = "",
    stated: Mapping[str, Any] | None = None,
    allow: Sequence[str] = (),
) -> Imported:
    """Turn a launch file, or a command line, into a scenario.

    Args:
        source: file or command line.
        target: of the launcher; recognised where not given.
        stated: ``model``, ``cluster``, ``gpus``, ``seq_len``, ``global_batch``, ``vocabulary``,
            ``precision``; they replace what the file says.
        allow: rules of the release that the plan may break.

    Raises:
        InputError: unreadable, a part of the question missing, or a plan that cannot run; with its place.
    """
    values = {name: value for name, value in (stated or {}).items() if value is not None}
    if (machine := _machine(source, values)) is not None:
        return machine
    text, where, path = _text(source)
    if (not target or target == MEGATRON) and (swift := megatron_command(text, where)):
        text, path, target = swift.command, None, MEGATRON
        values = {"model": swift.model, **values} if swift.model else values
    if not target or exporter(target, "--from").name in POST_TRAINED:
        from meshwright.exporters.post_training_read import read_post_training

        if trained := read_post_training(text, where, path, values, target):
            return trained
    if not target or exporter(target, "--from").name in SERVERS:
        from meshwright.exporters.server_files import servers_of
        from meshwright.exporters.server_read import read_servers

        if servers := servers_of(text, where, path):
            return read_servers(servers, values, where)
        if target:
            raise InputError("has no command that starts a server of this kind", where)
    if not target or exporter(target, "--from").name in TUNED:
        from meshwright.exporters.tuning_read import read_tuning

        if tuned := read_tuning(text, where, path):
            launch = replace(tuned.launch, devices=values["gpus"]) if values.get("gpus") else tuned.launch
            scenario = _scenario(tuned.facts, launch, values, tuned.framework, where)
            # Axolotl and forks share tensors, sequences and experts where TRL's release does not.
            shares = any(tuned.facts.get(degree, 1) != 1 for degree in SHARED_DEGREES)
            allowed = (*allow, "offers") if shares and "offers" not in allow else allow
            return _imported(scenario, launch, tuned.trainer, launch.options, (), allowed, where)
        if target:
            raise InputError("has no keys of a fine-tuning file of this kind", where)
    reader = exporter(target, "--from") if target else recognised(text, where)
    if reader.read is None or reader.parse is None:
        readable = [*(name for name in TARGETS if exporter(name).read), *SERVERS]
        raise InputError(f"files of {reader.name} cannot be imported; {', '.join(readable)} can", "--from")
    launch = reader.parse(text, where, path)
    if values.get("gpus"):
        launch = replace(launch, devices=values["gpus"])
    launcher = table(reader.table)
    launcher.check(launch.options, where, named="model" in values)
    facts = reader.read(launch, where)
    _, left = launcher.read(launch.options)
    left = {name: value for name, value in left.items() if name not in facts.get(TAKEN, ())}
    framework = str(facts.get("derived.framework") or launcher.framework)
    launcher.check_known(left, where)
    scenario = _scenario(facts, launch, values, framework, where)
    return _imported(scenario, launch, reader.name, left, tuple(launcher.unknown(left)), allow, where)


MEGATRON = "megatron-lm"
SHARED_DEGREES = ("plan.tensor", "plan.context", "plan.expert")
MACHINE = "reports of a machine"
"""Target of an import that makes a cluster."""


def _machine(source: str, values: Mapping[str, Any]) -> Imported | None:
    """The cluster of a file or a folder of reports; None of other sources."""
    from meshwright.machines.cluster import is_report, read_machine, texts_of

    path = Path(source)
    if "\n" in source or not exists(path):
        return None
    texts = texts_of(source)
    if not any(is_report(text) for text, _ in texts):
        return None
    base = values.get("cluster")
    if base is not None and not isinstance(base, str):
        raise InputError("a name of the catalogue is needed beside reports of a machine", "--cluster")
    machine = read_machine(texts, base, values.get("gpus"))
    return Imported(machine.cluster, MACHINE, {}, (), machine.notes)


def _imported(
    scenario: dict[str, Any],
    launch: Launch,
    target: str,
    left: Options,
    unknown: tuple[str, ...],
    allow: Sequence[str],
    where: str,
) -> Imported:
    """The scenario of a training launch, checked; fields that the release sets so are left out."""
    scenario |= {"allow": list(allow)} if allow else {}
    # Names and paths of model and cluster are the caller's, relative to the current folder.
    imported_scenario = make_scenario(scenario, where, Path())
    plan = imported_scenario.needed_plan(where)
    usual = chosen_levers(imported_scenario.setting, plan)
    same_as_release = {name for name, value in usual.items() if scenario["plan"].get(name) == value}
    for name in moot(imported_scenario.setting, plan) - {"sequence_parallel"} | same_as_release:
        scenario["plan"].pop(name, None)
    broken = insisted(imported_scenario.setting, plan)
    against = (f"against the rule {rule}, as --allow asks: {why}" for rule, why in broken.items())
    more = (
        *_tokens_of_run(left, imported_scenario.setting.training),
        *_older_attention(imported_scenario, scenario),
    )
    notes = (*launch.notes, *more, *against)
    return Imported(scenario, target, left, unknown, notes)


TUNED = ("trl", "axolotl")
"""Targets whose files fine-tune with transformers' Trainer."""

POST_TRAINED = ("verl", "nemo-rl")
"""Targets whose files post-train."""

SERVERS = ("vllm", "sglang", "trtllm", "dynamo", "k8s")
"""Targets whose files start servers; they become serving scenarios."""

READ = (*TUNED, "llama-factory", *POST_TRAINED, *SERVERS)
"""Targets that are read and that no option names."""

ITERATIONS = ("--train-iters", "train.train_iters", "training.steps")
"""Options with the optimizer steps of the whole run."""


def _older_attention(imported_scenario: Scenario, scenario: dict[str, Any]) -> tuple[str, ...]:
    """State unfused attention on devices without a fused kernel, where the file leaves it to the release."""
    device, plan = imported_scenario.setting.cluster.device, scenario["plan"]
    if device.generation.fused_attention or plan.get("attention", "flash") != "flash":
        return ()
    if imported_scenario.setting.choices.attention != "flash":
        return ()
    plan["attention"] = "unfused"
    return (f"{device.name} has no kernel of flash attention: plan.attention is unfused",)


def _tokens_of_run(left: Options, workload: Training) -> tuple[str, ...]:
    """Tokens of the whole run, and the command that prices them."""
    steps = next((str(left[name]) for name in ITERATIONS if name in left), "")
    if not steps.isdigit() or len(steps) > MOST_DIGITS:
        return ()
    tokens = int(steps) * workload.global_batch * workload.seq_len
    return (f"the run trains {tokens:.3g} tokens; `meshwright plan FILE --tokens {tokens:.3g}` prices it",)


def _text(source: str) -> tuple[str, str, Path | None]:
    """The text of a file or a command line, and its name in errors."""
    path = Path(source)
    if "\n" not in source and exists(path):
        path = _only_file(path) if path.is_dir() else path
        return read_text(path), str(path), path
    if " " in source.strip() or "\n" in source:
        return source, "command", None
    if looks_like_path(source) or re.search(r"\.\w{1,6}$", source):
        raise no_such_file(path)
    raise InputError(f"is neither a file nor a command line: {source!r}", "FILE")


def _only_file(folder: Path) -> Path:
    """The one file of a folder.

    Raises:
        InputError: it has none, or several.
    """
    files = sorted(part for part in folder.iterdir() if part.is_file())
    if len(files) == 1:
        return files[0]
    named = ", ".join(str(file) for file in files[:6]) or "none"
    raise InputError(f"has no report of a machine; name one launch file of its files: {named}", str(folder))


SCRIPT = re.compile(r"[\w./-]{1,200}\.py\b|(?m:^\s*(?:swift|tune|xtuner)\s+\w+)")
"""What a launch file of a kind that is not read runs."""


FOREIGN = (
    ("torchtune", r"(?m)^\s*_component_:\s*torchtune\."),
    ("GPT-NeoX", r"(?m)^\s*[\"']?pipe[-_]parallel[-_]size[\"']?\s*:"),
    ("llm-foundry", r"(?m)^(?:device_train_microbatch_size|global_train_batch_size|max_duration):"),
    ("LitGPT", r"(?m)^\s*class_path:\s*litgpt\.|^lora_query:|^\s*litgpt\s"),
    ("Levanter", r"(?m)^initialize_from_hf:|^\s*fsdp_axis:"),
    ("nanotron", r"(?m)^parallelism:[\s\S]{0,400}^\s+pp_engine:"),
)
"""Launchers whose files are not read, by keys that only they have."""


def recognised(text: str, where: str) -> Exporter:
    """The exporter with most options in the text.

    Raises:
        InputError: no exporter's options.
    """
    if foreign := next(((name, key) for name, kind in FOREIGN if (key := re.search(kind, text))), None):
        named = " ".join(foreign[1][0].split()).rstrip(":")
        problem = (
            f"is a file of {foreign[0]} ({named}), which is not read; state its model, batch and degrees"
        )
        raise InputError(f"{problem}: meshwright simulate --model NAME --gpus N --fix FIELD=VALUE", where)
    hints = {name: sum(hint in text for hint in exporter(name).hints) for name in TARGETS}
    if "--num-layers" in text and "--hidden-size" in text:  # Megatron-DeepSpeed has keys of both
        hints["deepspeed"] = 0
    best = max(hints, key=lambda name: hints[name])
    if not hints[best]:
        if read := re.findall(r"(?m)^\s*(?:exec\s+)?(?:\.|source|(?:ba)?sh)\s+(\S*\.sh\b\"?|\S+)", text):
            problem = f"takes its options from {', '.join(read[:3])}; give a file with all options"
            raise InputError(problem, where)
        if re.search(r"(?m)^model:", text) and re.search(r"(?m)^workload:", text):
            raise InputError(f"is a scenario already: meshwright simulate {where}", where)
        kinds = ", ".join(name for name in TARGETS if exporter(name).hints or name in READ)
        if script := SCRIPT.search(text):
            problem = f"runs {script[0].strip()!r}, which is no launcher that is read"
            raise InputError(f"{problem}; --from names one that it is like: {kinds}", where)
        raise InputError(f"has no options of a launch file; name its kind with --from: {kinds}", where)
    return exporter(best)


def _scenario(
    facts: Facts, launch: Launch, stated: Mapping[str, Any], framework: str, where: str
) -> dict[str, Any]:
    """The mapping of a scenario."""
    model = stated.get("model") or _model(facts, stated, where)
    if "cluster" not in stated:
        raise InputError("launch files do not name the cluster: give --cluster", where)
    if launch.devices is None:
        raise InputError("the launch file does not state the number of devices: give --gpus", where)
    devices = launch.devices
    plan = {name.removeprefix("plan."): value for name, value in facts.items() if name.startswith("plan.")}
    plan = {
        name: value
        if Plan.model_fields[name].annotation is not int
        else integer(facts, f"plan.{name}", where)
        for name, value in plan.items()
    }
    ranks = _product(plan, ("tensor", "context", "pipeline"))
    if devices % ranks:
        degrees = " x ".join(f"{name} {plan.get(name) or 1}" for name in ("tensor", "context", "pipeline"))
        raise InputError(f"{devices} devices do not divide by {degrees}", where)
    plan = {"data": devices // ranks, **{name: value for name, value in plan.items() if value is not None}}
    if (plan.get("tensor") or 1) == 1:
        plan["sequence_parallel"] = False
    workload = _workload(facts, stated, where)
    if "global_batch" not in workload:
        workload["global_batch"] = (
            (plan.get("micro_batch") or 1)
            * plan["data"]
            * (integer(facts, "derived.micro_batches", where) or 1)
        )
    if "seq_len" not in workload:
        raise InputError("the launch file does not state the sequence length: give --seq-len", where)
    return {
        "model": model,
        "cluster": stated["cluster"],
        "gpus": devices,
        "workload": workload,
        "framework": framework,
        "plan": plan,
    }


def _product(plan: Mapping[str, Any], names: tuple[str, ...]) -> int:
    degrees = 1
    for name in names:
        degrees *= max(plan.get(name) or 1, 1)
    return degrees


def _workload(facts: Facts, stated: Mapping[str, Any], where: str) -> dict[str, Any]:
    workload: dict[str, Any] = {}
    for name in Training.model_fields:
        if name in stated:
            workload[name] = stated[name]
        elif name in ("seq_len", "global_batch"):
            if (value := integer(facts, f"workload.{name}", where)) is not None:
                workload[name] = value
        elif facts.get(f"workload.{name}") == AUTO:
            problem = "auto is what the trainer fills in (--bf16, --fp16); write true or false in the file"
            raise InputError(problem, f"{where}: bf16.enabled")
        elif f"workload.{name}" in facts:
            workload[name] = facts[f"workload.{name}"]
    if workload.get("causal") is True:
        del workload["causal"]
    return workload


def _model(facts: Facts, stated: Mapping[str, Any], where: str) -> str | dict[str, Any]:
    """The model of the facts; a catalogue name where the catalogue has it.

    Raises:
        InputError: a part of the shape is missing.
    """
    sizes = {
        name.removeprefix("model."): _typed(value)
        for name, value in facts.items()
        if name.startswith("model.")
    }
    if isinstance(name := sizes.pop("name", None), str):
        return name
    if "vocabulary" in stated:
        sizes["vocabulary"] = stated["vocabulary"]
    if not {"layers", "hidden", "heads"} & sizes.keys():
        named = facts.get("derived.model")
        problem = f"the model {named!r} is not in the catalogue" if named else "no model is in it"
        raise InputError(f"{problem}: give --model", where)
    if match := catalogue_name(sizes):
        return match
    if "vocabulary" not in sizes:
        raise InputError(
            "the launch file does not state the vocabulary (its tokenizer does): give --vocabulary", where
        )
    nested: dict[str, Any] = {}
    for name, value in sizes.items():
        part, _, key = name.rpartition(".")
        (nested.setdefault(part, {}) if part else nested)[key] = value
    nested = {"name": "imported", **nested}
    build(Model, nested, f"{where}: model")
    return nested


def _typed(value: Any) -> Any:
    return int(value.replace("_", "")) if isinstance(value, str) and BARE_NUMBERS.fullmatch(value) else value


MATCHED = (
    "layers",
    "hidden",
    "heads",
    "feed_forward",
    "moe.experts",
    "moe.top_k",
    "moe.feed_forward",
    "mla.kv_lora_rank",
)
"""Shape that identifies a catalogue model; all other facts given must be equal too."""
LOOSE = (
    "max_sequence",
    "mtp_layers",
    "moe.shared_experts",
    "moe.shared_feed_forward",
    "norms_per_layer",
    "qkv_bias",
    "head_dim",
    "kv_heads",
)


def catalogue_name(sizes: Facts) -> str | None:
    """The catalogue's model with this shape; of several, the one with the same longest sequence."""
    matches = []
    for model in models:
        has = shape(model)
        if all(same(has.get(name), sizes.get(name)) for name in MATCHED) and _agrees(model, has, sizes):
            matches.append(model)
    matches.sort(key=lambda model: (not same(model.max_sequence, sizes.get("max_sequence")), len(model.name)))
    return matches[0].name if matches else None


def _agrees(model: Model, has: Facts, sizes: Facts) -> bool:
    """Whether a model agrees with all facts given."""
    exact = {name: value for name, value in sizes.items() if name not in LOOSE}
    if not all(same(has.get(name), value) for name, value in exact.items()):
        return False
    if model.position == "learned" and not same(
        model.max_sequence, sizes.get("max_sequence", model.max_sequence)
    ):
        return False
    kv_heads = sizes.get("kv_heads", sizes["heads"])
    width = (sizes.get("moe.shared_experts") or 0) * (sizes.get("moe.shared_feed_forward") or 0)
    shared = model.moe.shared_experts * model.moe.shared_feed_forward if model.moe else 0
    heads = model.mla is not None or same(kv_heads, model.kv_heads)
    return (
        heads and same(width, shared) and ("head_dim" not in sizes or same(sizes["head_dim"], model.head_dim))
    )
