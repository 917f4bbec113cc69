"""LoRA beside QLoRA of a 7B model on one A100 of 40 GB, as a public page compares them; runs with adapters.

    python -m benchmarks.adapter_speeds [RUNS.csv ...]

Vertex AI, "LoRA and QLoRA recommendations for LLMs" (docs of Model Garden): LoRA is about 66 % faster. On one
A100 of 40 GB openLLaMA-7B takes batch 2 under LoRA and 24 under QLoRA; on an L4 LoRA fails with batch 1, and
QLoRA takes 12. Such batches are those of LoRA without recomputation and of QLoRA with it: PEFT's
``prepare_model_for_kbit_training`` turns gradient checkpointing on by default (peft, utils/other.py). It
states neither a length nor what recomputes. Below it errors of step times and peaks of published runs with
adapters, by source: those of the files, and of ``evidence/fits/fine_tuning_peaks.csv``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import meshwright as mw
from evidence.accuracy.errors import Errors
from evidence.command import command
from evidence.fits.memory_chances import FINE_TUNING
from evidence.training.parts import source_of
from meshwright.validation.ledger import PredictedCase, evaluate

LENGTHS = (512, 1024, 2048)
PUBLISHED = 1.66
NF4 = {"rank": 16, "base": "nf4"}


def step(length, batch, recompute, adapter):
    """Tokens/s and GiB at the peak of one step."""
    plan = {"micro_batch": batch, "recompute": recompute}
    question = {"model": "llama-7b", "cluster": "dgx-a100-40gb", "gpus": 1}
    report = mw.simulate(**question, seq_len=length, global_batch=batch, adapter=adapter, plan=plan).report
    return report.tokens_per_s_per_gpu, report.peak_memory_bytes / 2**30


def print_runs(entries: Sequence[PredictedCase]) -> None:
    """Errors of steps and of peaks of the runs with adapters, all and by source."""
    adapted = {entry.case.case_id: entry for entry in entries if entry.case.setting.training.adapter}
    errors = Errors()
    for case, entry in adapted.items():
        for name, error in (("step", entry.relative_error), ("peak", entry.memory_error)):
            if error is not None:
                errors.count(error, f"{name}, all", f"{name}, {source_of(case)}")
    print("\n" + "\n".join(errors.lines("predicted over measured, less 1, %")))


@command
def main(files: Annotated[Sequence[Path], "published runs"] = ()) -> None:
    print(f"LoRA over QLoRA, tokens/s; published {PUBLISHED}")
    for length in LENGTHS:
        plain = step(length, 2, "none", {"rank": 16})
        same = step(length, 2, "none", NF4)
        again = step(length, 2, "full", NF4)
        large = step(length, 24, "full", NF4)
        print(
            f"{length:5} tokens: {plain[0] / same[0]:.2f} with one plan; QLoRA recomputes: "
            f"{plain[0] / again[0]:.2f} at batch 2, {plain[0] / large[0]:.2f} at batch 24; "
            f"LoRA of 2 fills {plain[1]:.1f} GiB, QLoRA of 24 {large[1]:.1f} GiB"
        )
    print_runs(evaluate([*files, FINE_TUNING]).entries)
