"""Runs of weeks: accuracy, tables of the docs, and speed.

``python -m benchmarks.runs`` writes docs/accuracy/runs.md: figures of published runs beside predictions.
``--docs`` writes the tables of docs/runs.md. ``--speed`` times 1,000 replications of 90 days on 16,384 GPUs,
and a search with ``run:`` against the same search without, in seconds of this process.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Annotated

from core.durations import written
from evidence.claims.run_papers import RUN_CLAIMS, run_rows
from evidence.command import command
from meshwright.api.runs import plan_run
from meshwright.questions.scenarios import shipped_scenarios
from planner.run_search import CANDIDATES
from planner.training.constraints import Constraints
from planner.training.search import search
from simulator.checkpoints import MECHANISMS
from simulator.faults import PROCESSES, Exposed, presets, read_faults
from simulator.runs.recovery import STAGES
from simulator.runs.result import simulate_run
from simulator.scenario import read_scenario

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- tables: python -m benchmarks.runs --docs -->", "<!-- end of tables -->"

HEAD = """# Accuracy of runs of weeks

Written by `python -m benchmarks.runs`. Every row is a published figure of a run with its band, set before the
first run; "printed" rows have no band: they are inputs, or the row is said to be unexplained. Ids are rows of
the collected data (F: faults, C: checkpoints). Second-hand rows set bands and presets, never a default. A
preset's size term is its own system's figure: RSC's does not predict FT-HSDP's, nor the reverse.

"""


def accuracy() -> str:
    """The page of docs/accuracy/runs.md."""
    lines = list(run_rows([]))
    inside = sum("| inside |" in line for line in lines)
    banded = sum(claim.band is not None for claim in RUN_CLAIMS)
    causes = (
        "\nMissed: one slow GPU of BLOOM lengthens the kernels of its stage, which are three quarters of\n"
        "the step: exchanges of gradients (7 %), filling the pipeline (7 %) and tensor-parallel traffic\n"
        "(5 %) do not slow down with it; the measured 6 % stay unexplained. Backup workers gain more than\n"
        "three times where a heavy tail as long as a task is assumed. Gradient coding has a band for its\n"
        "sign only: the share of a task that grows with its data is not stated.\n"
    )
    return (
        f"{HEAD}{inside} of {banded} figures with a band lie inside.\n\n" + "\n".join(lines) + "\n" + causes
    )


def tables() -> str:
    """Presets, processes, stages and mechanisms, from their registries."""
    job = Exposed(2048, 8)
    lines = ["| preset | system | evidence | faults every, 16,384 devices |", "|---|---|---|---|"]
    for preset in presets:
        faults = read_faults(preset.name, "docs", Path())
        size = Exposed(400, 8) if any(not process.repeats for process in faults.processes) else job
        note = f" ({size.devices:,} devices)" if size is not job else ""
        grade = "second hand" if preset.second_hand else preset.evidence
        lines.append(
            f"| `{preset.name}` | {preset.title} | {grade} | {written(1 / faults.rate(size))}{note} |"
        )
    lines += ["", "| `kind` of faults | what |", "|---|---|"]
    lines += [f"| `{name}` | {process.HELP} |" for name, process in PROCESSES.items()]
    lines += ["", "| stage of `recovery` | what | keys |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {stage.HELP} | {', '.join(f'`{key}`' for key in stage.model_fields)} |"
        for name, stage in STAGES.items()
    ]
    lines += ["", "| `mechanism` of `checkpoints` | what | default places |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {mechanism.HELP} | {', '.join(mechanism.PLACES)} |"
        for name, mechanism in MECHANISMS.items()
    ]
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """The page of docs/runs.md with its tables as the registries have them."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def print_speed() -> None:
    """Print the times of replications and of a search."""
    from meshwright.api.runs import run

    done = run(str(shipped_scenarios()["papers/run-llama3-405b"]), replications=1)
    inputs = done.planned.outcome.inputs
    steps = int(90 * 86400 / inputs.step_s)
    begun = time.process_time()
    longer = type(inputs)(**{**vars(inputs), "steps": steps})
    outcome = simulate_run(longer, 1000, 0)
    took = time.process_time() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"1,000 replications of 90 days, {outcome.faults:.0f} faults each: {took:.1f} s, {memory:.2f} GB")
    question = read_scenario(shipped_scenarios()["papers/run-llama3-405b"])
    begun = time.process_time()
    search(question.setting, question.setting.cluster.devices, Constraints.of({}, {}), "time", CANDIDATES)
    plain = time.process_time() - begun
    begun = time.process_time()
    plan_run(str(shipped_scenarios()["papers/run-llama3-405b"]))
    with_run_s = time.process_time() - begun
    print(f"search without run {plain:.2f} s, with run {with_run_s:.2f} s: {with_run_s / plain:.2f} times")


@command
def main(
    *,
    docs: Annotated[bool, "write the tables of docs/runs.md"] = False,
    speed: Annotated[bool, "time replications and a search"] = False,
) -> None:
    """Write the pages, or print the times."""
    if speed:
        print_speed()
    elif docs:
        page = DOCS / "runs.md"
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        (DOCS / "accuracy" / "runs.md").write_text(accuracy(), encoding="utf-8")
