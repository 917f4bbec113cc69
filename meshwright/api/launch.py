"""The Python API of launch files: plans out as files of a launcher, launch files in as scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError
from meshwright.exporters import export as exported
from meshwright.exporters import exporter, write_files
from meshwright.exporters.base import Export, ExportQuestion, Imported
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario, question_of
from meshwright.questions.references import ClusterReference, ModelReference, Reference

if TYPE_CHECKING:
    from meshwright.api.serving import DeploymentSearch
    from meshwright.results import PlanSearch

__all__ = ["Export", "Imported", "export", "import_"]

COMMAND = "meshwright.export"
"""Origin that exported files name, where no command line wrote them."""


def export(
    plan: Reference | PlanSearch | DeploymentSearch,
    to: str,
    out: str | Path | None = None,
    *,
    rank: int | None = None,
    command: str = COMMAND,
    allow: Sequence[str] | None = None,
) -> Export:
    """Turn a plan into the files that a launcher reads.

    Args:
        plan: scenario (file, shipped name or mapping), file of ``plan --json``, or result of ``mw.plan`` or
            ``mw.deploy``.
        to: target: megatron-lm, megatron-bridge, deepspeed, torchtitan, vllm, sglang, trtllm, dynamo, slurm
            or k8s.
        out: folder to write the files to, all or none; None writes nothing.
        rank: plan of a search, from 1; the first by default.
        command: command line that the files name as their origin.
        allow: rules of the release that the plan may break (docs/search.md); the files say so.

    Returns:
        ``files`` (text by name), ``gaps`` (fields that the launcher cannot express) and ``notes`` (inputs
        that the user adds).

    Raises:
        InputError: an unknown target, a plan of the other kind, no such rank, or an unwritable file.
    """
    exporter(to)
    launch = exported(export_question(plan, rank, command, allow), to)
    if out is not None:
        write_files(launch, Path(out))
    return launch


def export_question(
    plan: Reference | PlanSearch | DeploymentSearch,
    rank: int | None = None,
    command: str = COMMAND,
    allow: Sequence[str] | None = None,
) -> ExportQuestion:
    """The question of an export; see ``export``.

    Raises:
        InputError: no such rank, or no plan.
    """
    if isinstance(plan, str | Path):
        return question_of(str(plan), rank, command, allow)
    if not isinstance(plan, Mapping):
        return from_scenario(plan.scenario((rank or 1) - 1), "plan", Path(), command, allow)
    if rank is None:
        return from_scenario(plan, "plan", Path(), command, allow)
    raise InputError("only a search has ranks, this is a scenario", "rank")


def import_(
    source: str | Path,
    *,
    cluster: ClusterReference | None = None,
    gpus: int | None = None,
    model: ModelReference | None = None,
    vocabulary: int | None = None,
    seq_len: int | None = None,
    global_batch: int | None = None,
    kind: str = "",
    allow: Sequence[str] | None = None,
) -> Imported:
    """Read a launch file, or a command line, as a scenario; reports of a machine as a cluster.

    Nothing is executed.

    Args:
        source: shell script, configuration file, or command line; or output of nvidia-smi, ibstat, lspci and
            SLURM, in a file or a folder.
        cluster: catalogue name, path, mapping or object; of reports, the name of the cluster whose links
            stand for what they do not say.
        gpus, model, vocabulary, seq_len, global_batch: values that the source does not state.
        kind: megatron-lm, megatron-bridge, deepspeed or torchtitan; recognised by default.
        allow: rules of the release that the launch may break (docs/search.md); the scenario says so.

    Returns:
        ``scenario`` (for ``mw.simulate`` and the others; of reports, the cluster), ``aside`` (options that no
        prediction reads), ``unknown`` (unknown options among them) and ``notes``.

    Raises:
        InputError: unreadable, a part of the question is missing, or the plan cannot run.
    """
    stated = {"cluster": cluster, "gpus": gpus, "model": model, "vocabulary": vocabulary}
    stated |= {"seq_len": seq_len, "global_batch": global_batch}
    return read_launch(str(source), target=kind, stated=stated, allow=allow or ())
