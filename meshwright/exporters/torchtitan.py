"""torchtitan: a Python function that returns a ``Trainer.Config``, and the command that selects it."""

from __future__ import annotations

from meshwright.exporters.base import Export, Exporter, ExportQuestion, Launch, commented, header
from meshwright.exporters.facts import (
    check_derived,
    facts_of,
    question_gaps,
    shipped_model,
)
from meshwright.exporters.host_state import EXPRESSED, titan_offload
from meshwright.exporters.megatron_lm import NODES, node_variables
from meshwright.exporters.state_read import titan_state
from meshwright.exporters.table import Facts, Options, integer, table, words_of
from meshwright.exporters.titan_files import parse
from simulator.layout.stages import Spread
from simulator.plan import Plan, Plans
from simulator.setting import Setting

TABLE = "torchtitan-0.3.yaml"
EAGER = "torchtitan-eager"
"""Framework of launches that state not to compile."""
FILE, SCRIPT = "meshwright_config.py", "train.sh"
NOTES = ("tokenizer assets and data (hf_assets_path, dataloader), learning rate, checkpoints",)
POLICIES = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
CONVERTER = "{name}.Config(model_compile_enabled=True)"


def write(question: ExportQuestion) -> Export:
    """The configuration, the launch script and their gaps.

    Raises:
        InputError: torchtitan ships no such model.
    """
    scenario, plan = question.training()
    setting, launcher = scenario.setting, table(TABLE)
    module, _, flavor = shipped_model(setting.model, launcher).partition("/")
    facts, gaps = titan_facts(setting, plan, facts_of(scenario, plan, launcher))
    options, more = launcher.write(facts)
    framework = (
        setting.framework.name if setting.framework.name.startswith("torchtitan") else launcher.framework
    )
    state, lacking = titan_offload(plan)
    options |= state
    gaps = (*question_gaps(scenario, framework, EXPRESSED), *gaps, *more, *lacking)
    check_derived(setting, plan, computed(options, setting.cluster.devices))
    text = commented(header(question, launcher.version, gaps, NOTES)) + _config(module, flavor, options)
    script = "#!/usr/bin/env bash\n" + commented(header(question, launcher.version, gaps, NOTES))
    script += "# Run on every node from torchtitan's folder.\nset -euo pipefail\n\n" + node_variables(
        setting.cluster
    )
    script += f'\nexport PYTHONPATH="$(cd "$(dirname "$0")" && pwd):${{PYTHONPATH:-}}"\ntorchrun {NODES} \\\n'
    script += '    -m torchtitan.train --module meshwright_config --config meshwright_plan "$@"\n'
    return Export({FILE: text, SCRIPT: script}, gaps, NOTES, f"bash {SCRIPT}")


def titan_facts(setting: Setting, plan: Plan, facts: Facts) -> tuple[Facts, list[str]]:
    """Facts under torchtitan's configuration keys, and facts without a key."""
    titan = {name: value for name, value in facts.items() if not name.startswith("model.")}
    gaps = []
    ranks, group = plan.data * plan.context, plan.shard_group or plan.data * plan.context
    if plan.zero == 0:
        titan |= {"derived.replicate": plan.data, "derived.shard": 1}
        if plan.context > 1:
            gaps.append("plan.zero = 0: context-parallel ranks always shard their parameters")
    else:
        if plan.zero == 1:
            gaps.append("plan.zero = 1: FSDP2 shards gradients with the optimizer")
        if group % plan.context:
            gaps.append(f"plan.shard_group = {group}: a group holds whole context-parallel groups")
        titan |= {"derived.replicate": ranks // group, "derived.shard": max(group // plan.context, 1)}
        titan["derived.reshard"] = "always" if plan.zero == 3 else "never"
    if plan.pipeline > 1:
        titan["derived.local_batch"] = setting.training.global_batch // plan.data
        titan["derived.pipeline_micro_batch"] = plan.micro_batch
        chunks = [round(length) for length in Spread.of(setting, Plans.of(plan)).lengths]
        # torchtitan trains no multi-token prediction: its last stage holds the model's layers alone.
        chunks[-1] -= round(setting.mtp_layers)
        per_chunk = max(chunks[1:-1], default=max(chunks))
        titan["derived.layers_per_chunk"] = per_chunk
        titan |= {"derived.first_less": per_chunk - chunks[0], "derived.last_less": per_chunk - chunks[-1]}
        if min(per_chunk - chunks[0], per_chunk - chunks[-1]) < 0:
            gaps.append("plan.first_stage_layers: end stages hold at most as many layers as those between")
    else:
        titan["derived.local_batch"] = plan.micro_batch
    return titan, gaps


def computed(options: Options, devices: int) -> dict[str, int]:
    """torchtitan's arithmetic (trainer.py): the data degree, and whole accumulation steps."""
    degrees = ("tensor", "pipeline", "context")
    ranks = 1
    for name in degrees:
        ranks *= int(options.get(f"parallelism.{name}_parallel_degree", 1))
    data = int(options["parallelism.data_parallel_replicate_degree"])
    data *= int(options["parallelism.data_parallel_shard_degree"])
    step = int(options["training.local_batch_size"]) * data
    return {
        "devices": ranks * data,
        "data": data,
        "global_batch": int(options["training.global_batch_size"]) // step * step,
    }


def _config(module: str, flavor: str, options: Options) -> str:
    """The Python file: a shipped model, and every option set by name."""
    policy = POLICIES[str(options.get("activation_checkpoint", "selective"))]
    converter = options.get("converters")
    imports = ["from torchtitan.components.optimizer import default_adamw"]
    imports.append("from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig")
    named = [policy.split(".")[0]] if policy != "None" else []
    if named:
        imports.append(f"from torchtitan.distributed.activation_checkpoint import {named[0]}")
    imports.append("from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader")
    imports.append("from torchtitan.components.loss import CrossEntropyLoss")
    imports.append("from torchtitan.models.common.config_utils import decoder_vocab_size")
    imports.append(f"from torchtitan.models.{module} import model_registry")
    imports.append("from torchtitan.trainer import Trainer")
    if converter:
        imports.append(f"from torchtitan.components.quantization import {converter}")
    model = f'model_registry("{flavor}"'
    model += f", converters=[{CONVERTER.format(name=converter)}])" if converter else ")"
    sections = {"training": "TrainingConfig", "parallelism": "ParallelismConfig"}
    lines = ["model_spec=model_spec,", "optimizer=default_adamw(lr=3e-4),"]
    lines.append('dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),')
    lines.append("loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),")
    for section, name in sections.items():
        lines.append(f"{section}={name}(")
        lines += [f"    {key}={value!r}," for key, value in _section(options, section).items()]
        lines.append("),")
    compiled = {"enable": True, **_section(options, "compile")}
    words = ", ".join(f"{key}={value!r}" for key, value in compiled.items())
    lines.append(f"compile=CompileConfig({words}),")
    lines.append(f"activation_checkpoint={policy},")
    body = "".join(f"        {line}\n" for line in lines)
    top = "\n".join(sorted(imports))
    return (
        f"\n{top}\n\n\ndef meshwright_plan() -> Trainer.Config:\n"
        f"    model_spec = {model}\n    return Trainer.Config(\n{body}    )\n"
    )


def _section(options: Options, section: str) -> Options:
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def read(launch: Launch, where: str) -> Facts:
    """Facts of a configuration.

    Raises:
        InputError: a value that is not a number.
    """
    launcher = table(TABLE)
    options = launch.options
    name = str(options.get("--config", ""))
    options = {**launcher.configs.get(name, {}), **options}
    facts, _ = launcher.read(options)
    facts |= titan_state(options)
    flavor = options.get("model_spec") or options.get("model.flavor")
    if "/" not in str(flavor) and "model.name" in options:
        flavor = f"{options['model.name']}/{flavor}"
    facts["model.name"] = next((ours for ours, theirs in launcher.models.items() if theirs == flavor), None)
    facts["derived.model"] = flavor
    components = words_of(options.get("compile.components", "model loss"))
    if options.get("compile.enable") in (False, "False", "false") or "model" not in components:
        facts["derived.framework"] = EAGER
    elif "loss" not in components:
        facts["plan.cross_entropy"] = "torch"
    stages, local = (
        integer(facts, "plan.pipeline", where) or 1,
        integer(facts, "derived.local_batch", where),
    )
    _read_sharding(facts, launch, where)
    if stages > 1:
        _read_chunks(facts, stages, where)
        facts["plan.micro_batch"] = integer(facts, "derived.pipeline_micro_batch", where) or 1
        facts["derived.micro_batches"] = (local or 8) // facts["plan.micro_batch"]
    else:
        facts["plan.micro_batch"] = local or 8
        facts.pop("plan.schedule", None)
    if str(facts.get("workload.global_batch", "")) == "-1":
        del facts["workload.global_batch"]
    return facts


def _read_sharding(facts: Facts, launch: Launch, where: str) -> None:
    """ZeRO stage and group of FSDP2's degrees; -1 stands for the remaining ranks."""
    replicate = integer(facts, "derived.replicate", where) or 1
    shard = integer(facts, "derived.shard", where) or -1
    context = integer(facts, "plan.context", where) or 1
    stages, tensor = (integer(facts, f"plan.{name}", where) or 1 for name in ("pipeline", "tensor"))
    if shard < 0 and launch.devices:
        shard = max(launch.devices // (replicate * context * stages * tensor), 1)
    if shard == 1 and context == 1:
        facts["plan.zero"] = 0
        facts.pop("plan.overlap_parameters", None)
        return
    reshard = str(facts.get("derived.reshard", "default"))
    facts["plan.zero"] = 2 if reshard == "never" or (reshard == "default" and stages > 1) else 3
    if replicate > 1:
        facts["plan.shard_group"] = shard * context


def _read_chunks(facts: Facts, stages: int, where: str) -> None:
    """Chunks of a rank and layers of the end stages (distributed/pipeline_parallel.py)."""
    from simulator.models import models

    single = facts.get("plan.schedule") in ("1f1b", "gpipe")
    per_chunk = integer(facts, "derived.layers_per_chunk", where)
    less = [integer(facts, f"derived.{end}_less", where) for end in ("first", "last")]
    first, last = (1 if count is None else count for count in less)
    name = facts.get("model.name")
    layers = models.get(name).layers if name else 0
    chunks = 1 if single else 2
    if per_chunk and layers:
        chunks = max(-(-(layers + first + last) // per_chunk) // stages, 1)
    if chunks > 1:
        facts["plan.virtual_pipeline"] = chunks
    if (first or last) and layers and (layers + first + last) % (stages * chunks) == 0:
        rank = (layers + first + last) // stages
        for end, less in (("first", first), ("last", last)):
            count = rank - less
            facts[f"plan.{end}_stage_layers"] = 0 if count == layers // stages else count or -1


EXPORTER = Exporter(
    name="torchtitan",
    title="Python configuration for torchtitan",
    kinds=("training",),
    write=write,
    read=read,
    parse=parse,
    table=TABLE,
    hints=(
        "torchtitan",
        "Trainer.Config",
        "ParallelismConfig",
        "TrainingConfig",
        "--parallelism.",
        "[parallelism]",
        "tensor_parallel_degree",
        "local_batch_size",
        "[activation_checkpoint]",
    ),
)
