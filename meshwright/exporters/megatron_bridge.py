"""Megatron-Bridge: a recipe of the release with ``key=value`` overrides, run by its ``run_recipe.py``."""

from __future__ import annotations

from pathlib import Path

from meshwright.exporters.base import (
    Export,
    Exporter,
    ExportQuestion,
    Launch,
    array,
    commented,
    header,
    overrides,
)
from meshwright.exporters.facts import check_derived, facts_of, question_gaps, shipped_model
from meshwright.exporters.host_state import BRIDGE, EXPRESSED, megatron_offload
from meshwright.exporters.megatron_lm import (
    NODES,
    kernel_variables,
    megatron_facts,
    node_variables,
    undone,
)
from meshwright.exporters.shell import read_script
from meshwright.exporters.state_read import megatron_state
from meshwright.exporters.table import Facts, table

TABLE = "megatron-bridge-0.6.yaml"
FILE = "train.sh"
NOTES = ("data and tokenizer (dataset.*, tokenizer.*), learning rate, checkpoints",)
KEPT = (
    "derived.recompute_modules",
    "derived.chunks",
    "derived.layout",
    "derived.interleaved_sends",
    "derived.optimizer_instances",
)
COMMAND = """\
torchrun {nodes} \\
    scripts/training/run_recipe.py --recipe {recipe} "${{OVERRIDES[@]}}" "$@"
"""


def write(question: ExportQuestion) -> Export:
    """The script and its gaps.

    Raises:
        InputError: no recipe of the release trains the model.
    """
    scenario, plan = question.training()
    setting, launcher = scenario.setting, table(TABLE)
    recipe = shipped_model(setting.model, launcher)
    facts, gaps = megatron_facts(setting, plan, facts_of(scenario, plan, launcher))
    # The recipe has the model's shape.
    facts = {
        name: value
        for name, value in facts.items()
        if not name.startswith("model.") and (name in KEPT or not name.startswith("derived."))
    }
    facts["derived.dataset_seq_len"] = setting.training.seq_len
    options, more = launcher.write(facts)
    plan_gaps = [gap for gap in gaps if not gap.startswith("model.")]
    state, lacking = megatron_offload(plan, BRIDGE)
    options |= state
    gaps = (*question_gaps(scenario, launcher.framework, EXPRESSED), *plan_gaps, *more, *lacking)
    ranks = plan.tensor * plan.pipeline * plan.context
    data = setting.cluster.devices // ranks
    check_derived(setting, plan, {"devices": ranks * data, "data": data})
    text = "#!/usr/bin/env bash\n" + commented(header(question, launcher.version, gaps, NOTES))
    text += "# Run on every node from Megatron-Bridge's folder.\nset -euo pipefail\n\n"
    text += (
        node_variables(setting.cluster)
        + kernel_variables(options)
        + "\n"
        + array("OVERRIDES", overrides(options))
        + "\n"
    )
    text += COMMAND.format(nodes=NODES, recipe=recipe)
    return Export({FILE: text}, gaps, NOTES, f"bash {FILE}")


def read(launch: Launch, where: str) -> Facts:
    """Facts of a command with overrides.

    Raises:
        InputError: a value that is not a number, or a layout that plans do not express.
    """
    launcher = table(TABLE)
    facts, _ = launcher.read(launch.options)
    facts |= megatron_state(launch.options, BRIDGE, where)
    recipe = facts.pop("derived.recipe", None)
    model = next((name for name, theirs in launcher.models.items() if theirs == recipe), None)
    undone_facts = undone(facts, launch, where)
    return {
        **{key: value for key, value in undone_facts.items() if not key.startswith("model.")},
        "model.name": model,
    }


def parse(text: str, where: str, path: Path | None) -> Launch:
    """The launch of a script or a command line."""
    return read_script(text, where)


EXPORTER = Exporter(
    name="megatron-bridge",
    title="shell script for Megatron-Bridge's run_recipe.py",
    kinds=("training",),
    write=write,
    read=read,
    parse=parse,
    table=TABLE,
    hints=("run_recipe.py", "model.tensor_model_parallel_size", "train.micro_batch_size", "--recipe"),
)
