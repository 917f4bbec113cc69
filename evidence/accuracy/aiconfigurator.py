"""AIConfigurator and Meshwright on the same measured servers, and on the same questions.

    python -m benchmarks.aiconfigurator --python VENV/bin/python [--rows CLOSED_LOOP.csv.gz ...] [--questions]

``--python`` is an interpreter that has ``aiconfigurator`` (pip install aiconfigurator, in a virtual
environment of its own); without it, the benchmark prints a message and ends.

``--rows``: both tools predict TTFT and TPOT of measured aggregated servers in a closed loop. The median
errors of both are printed by group, with the number of rows that both answer. Lengths are the means of those
that were sent. AIConfigurator gets the degrees, the sequences of an attention rank, and the number formats of
its own list of measured servers. Its tables are of its newest version of the engine; Meshwright takes the
row's. Meshwright predicts by the steady state, the method nearest to AIConfigurator's; ``--replay`` adds the
event engine, as ``validate`` runs it. ``--fits FILE`` adds steady states with engine constants that were
fitted without the row's model, on the folders of all ``--rows``; the file keeps the fits, which take minutes.
``--every N`` takes each Nth row.

``--questions``: AIConfigurator's documented examples and ``meshwright plan serve``, as processes.
"""

from __future__ import annotations

import csv
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from core.errors import MeshwrightError
from evidence.command import command
from evidence.fits import fit_engines, refitted
from evidence.serving import closed_loop
from evidence.serving.case import MeasuredRow
from meshwright.validation.rows import SkippedRow

SYSTEMS = {
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "a100-sxm-80gb": "a100_sxm",
}
"""GPUs of AIConfigurator's tables."""
MODELS = {"meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B"}
"""Names of architectures in AIConfigurator, where its wheel lacks the row's."""
FP8_BLOCK = "fp8_block"
QUANTS = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp4": ("nvfp4", "nvfp4"),
    "fp8": ("fp8", "fp8"),
}
"""Formats of products and of experts by the row's weights, as in AIConfigurator's `silicon_sample.csv`."""
BLOCK_EXPERTS = ("deepseek-ai/", "Qwen/Qwen3.5")
"""Models whose fp8 experts that list has in blocks."""
BLOCK_DENSE = {("sglang", "meta-llama/Llama-3.1-8B-Instruct")}
LATENCIES = ("ttft", "tpot")
GROUP = ("harness", "engine", "model", "gpu", "weight_precision")


def estimate_arguments(row, question):
    """Arguments of AIConfigurator's estimate for a row and its case; None where it has no such GPU."""
    system = SYSTEMS.get(row["gpu"])
    if system is None:
        return None
    pool, model, precision = question.serving.pool, row["model"], row["weight_precision"]
    dense, experts = QUANTS.get(precision, (None, None))
    if precision == "fp8" and model.startswith(BLOCK_EXPERTS):
        experts = FP8_BLOCK
    if (row["engine"], model) in BLOCK_DENSE:
        dense = experts = FP8_BLOCK
    ranks = question.replicas * pool.data
    return {
        "model_path": MODELS.get(model, model),
        "system_name": system,
        "backend_name": row["engine"],
        "isl": round(question.prompt),
        "osl": round(question.output),
        "batch_size": max(round(question.concurrency / ranks), 1),
        "tp_size": pool.tensor,
        "pp_size": pool.pipeline,
        "attention_dp_size": pool.data,
        "moe_tp_size": pool.tensor * pool.data // pool.expert,
        "moe_ep_size": pool.expert,
        "gemm_quant_mode": dense,
        "moe_quant_mode": experts,
        "kvcache_quant_mode": {"fp8": "fp8", "bf16": "bfloat16"}.get(pool.kv or ""),
    }


def without_model(folders, fits_file):
    """Predictions of rows of one replica by steady states with constants fitted without their model."""

    @cache
    def fitted():
        refit = refitted.constants(folders, fits_file)["model"]
        fit_engines.fresh_tables()
        return refit

    def predict(questions):
        setup, fits = questions[0].serving, fitted()
        refitted.assign([setup], fits.get(setup.model.name, fits[refitted.NOTHING]))
        return closed_loop.predict_steady(questions)

    return predict


def read(path):
    """Unflagged aggregated rows without speculation, once each configuration, with their cases."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    pairs, seen = [], set()
    for row in csv.DictReader(text.splitlines()):
        if row["flag"] or row["mode"] != "agg" or row["spec"] == "mtp" or row["repeat_group"] in seen:
            continue
        try:
            case = closed_loop.read(MeasuredRow(row, str(path)), path.name)
        except (SkippedRow, MeshwrightError):
            continue
        if row["gpu"] in SYSTEMS:
            seen.add(row["repeat_group"])
            pairs.append((row, case))
    return pairs


def ours(cases, predict):
    """Meshwright's columns of every case, and CPU seconds."""
    groups, predicted = defaultdict(list), {}
    start = time.process_time()
    for case in cases:
        groups[case.question.key].append(case)
    for group in groups.values():
        try:
            answers = predict([case.question for case in group])
        except MeshwrightError:
            continue
        predicted.update(zip((case.case_id for case in group), answers, strict=True))
    return predicted, time.process_time() - start


def theirs(python, questions):
    """AIConfigurator's answers, and CPU seconds."""
    script = Path(__file__).with_name("aiconfigurator_estimates.py")
    ran = subprocess.run(
        [python, "-P", str(script)], input=json.dumps(questions), capture_output=True, text=True, check=True
    )
    *answers, seconds = json.loads(ran.stdout)
    return answers, seconds


def errors(answers, measured):
    """Signed relative errors of TTFT and TPOT, by name, of rows that state them."""
    by_group = defaultdict(list)
    for answer, truth in zip(answers, measured, strict=True):
        for name in LATENCIES:
            statistic = next((part for part in ("mean", "p50") if f"{name}_ms_{part}" in truth), None)
            if statistic is None or answer is None:
                continue
            value = answer.get(f"{name}_ms_{statistic}", answer.get(name))
            by_group[name].append(value / truth[f"{name}_ms_{statistic}"] - 1)
    return by_group


def compare_rows(paths, python, replays, fits_file, every=1):
    """Print the errors of both tools by group."""
    rows = [row for path in paths for row in read(path)][::every]
    cases = [case for _, case in rows]
    questions = [estimate_arguments(row, case.question) for row, case in rows]
    answers, seconds = theirs(python, questions)
    methods = {"steady state": closed_loop.predict_steady}
    if replays:
        methods["event engine"] = closed_loop.predict
    if fits_file:
        methods["model left out"] = without_model(sorted({path.parent for path in paths}), fits_file)
    columns = {"AIConfigurator": [None if "error" in answer else answer for answer in answers]}
    print(f"{len(rows)} rows; CPU seconds: AIConfigurator {seconds:.0f}", end="")
    for name, predict in methods.items():
        estimates, seconds = ours(cases, predict)
        columns[name] = [estimates.get(case.case_id) for case in cases]
        print(f", {name} {seconds:.0f}", end="", flush=True)
    modes = Counter(answer.get("mode", "no answer") for answer in answers)
    print("\nAIConfigurator:", ", ".join(f"{count} {mode}" for mode, count in modes.items()))
    failures = Counter(answer["error"][:160] for answer in answers if "error" in answer)
    for error, count in failures.most_common(8):
        print(f"  {count} x {error}")
    print(f"median error in % of TTFT / TPOT (median with its sign): {' | '.join(columns)}")
    for name, members in _groups(rows, answers).items():
        both = [at for at in members if all(column[at] is not None for column in columns.values())]
        estimates = [
            _words(errors([column[at] for at in both], [cases[at].measured for at in both]))
            for column in columns.values()
        ]
        print(
            f"{name}: {len(both)} of {len(members)} rows: {' | '.join(estimates) if both else ''}", flush=True
        )


def _groups(rows, answers):
    """Indices of rows by group, and of larger sets."""
    groups = defaultdict(list)
    for at, (row, _) in enumerate(rows):
        groups[" ".join(row[name] for name in GROUP if row[name])].append(at)
    ordered = dict(sorted(groups.items()))
    for at, (row, _) in enumerate(rows):
        ordered.setdefault(f"all of {row['engine']} on {row['gpu']}", []).append(at)
    for harness in ("inferencex", "aic-internal"):
        ordered[f"all of {harness}"] = [at for at, (row, _) in enumerate(rows) if row["harness"] == harness]
    for mode in ("SILICON", "HYBRID"):
        ordered[f"all in {mode}"] = [at for at, answer in enumerate(answers) if answer.get("mode") == mode]
    return {**ordered, "all rows": list(range(len(rows)))}


def _words(errors):
    parts = []
    for name in LATENCIES:
        values = np.array(errors[name])
        if len(values):
            parts.append(f"{100 * np.median(np.abs(values)):.1f} ({100 * np.median(values):+.1f})")
    return " / ".join(parts)


FP8 = ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "trtllm", "tensorrt-llm", "fp8")
QUESTIONS = (
    (*FP8, 4000, 1000, 2000, 30),
    (*FP8, 4000, 500, 300, 10),
    ("Qwen/Qwen3-32B", "qwen3-32b", "vllm", "vllm", "bf16", 4000, 1000, 2000, 30),
    ("Qwen/Qwen3-32B", "qwen3-32b", "sglang", "sglang", "bf16", 4000, 1000, 2000, 30),
    ("deepseek-ai/DeepSeek-V3", "deepseek-v3", "trtllm", "tensorrt-llm", "fp8", 4000, 1000, 2000, 30),
)
"""AIConfigurator's documented examples on 32 H200, with its default lengths and targets written out, without
cached prefixes: its model, ours, its engine, ours, weights, prompt and output tokens, TTFT and TPOT, ms."""
COLUMNS = (
    "tokens/s/gpu",
    "tokens/s/gpu_cluster",
    "ttft",
    "tpot",
    "concurrency",
    "num_total_gpus",
    "parallel",
)


def compare_questions(python):
    """Print what both tools choose, with CPU seconds and candidates."""
    tool = str(Path(python).with_name("aiconfigurator"))
    for name, model, backend, engine, weights, isl, osl, ttft, tpot in QUESTIONS:
        command = f"--model-path {name} --total-gpus 32 --system h200_sxm --backend {backend} "
        command += f"--isl {isl} --osl {osl} --ttft {ttft} --tpot {tpot}"
        print(f"\naiconfigurator cli default {command}")
        with tempfile.TemporaryDirectory() as folder:
            ran, seconds = _timed([tool, "cli", "default", *command.split(), "--save-dir", folder])
            print(f"  {seconds:.1f} CPU s" + (f", failed with {ran.returncode}" if ran.returncode else ""))
            for path in sorted(Path(folder).rglob("best_config_topn.csv")):
                row = next(iter(csv.DictReader(path.read_text().splitlines())), {})
                print(f"  {path.parent.name}: {_chosen(row)}")
        command = f"--model {model} --cluster dgx-h200 --gpus 32 --engine {engine} --fix weights={weights} "
        command += f"--isl {isl} --osl {osl} --ttft p50={ttft / 1e3:g} --tpot {tpot / 1e3:g}"
        print(f"meshwright plan serve {command}")
        words = [sys.executable, "-m", "meshwright", "plan", "serve", *command.split()]
        ran, seconds = _timed([*words, "--json", "--top", "50"])
        if ran.returncode:
            print(f"  {seconds:.1f} CPU s, {ran.stderr.strip()}")
            continue
        _show_ours(json.loads(ran.stdout), seconds)


def _show_ours(answer, seconds):
    """Print the best deployment in one pool and in two."""
    print(f"  {seconds:.1f} CPU s, {answer['candidates']:,} candidates")
    printed = set()
    for plan in answer["deployments"]:
        kind = "disagg" if len(plan["pools"]) > 1 else "agg"
        if kind not in printed:
            printed.add(kind)
            print(f"  {kind}: {_described(plan, answer['question'])}")


def _chosen(row):
    """The layout and the figures of a row of AIConfigurator's best configurations."""
    names = [name for name in row if name.endswith(("tp", "pp", "dp", "ep", "workers", "bs"))]
    layout = " ".join(f"{name}={row[name]}" for name in names if row[name] not in ("", "1", "0"))
    return " ".join(f"{name}={row[name][:6]}" for name in COLUMNS if row.get(name)) + f" {layout}"


def _described(plan, question):
    """The pools and the figures of one of Meshwright's deployments."""
    degrees = {"TP": "tensor", "DP": "data", "PP": "pipeline", "EP": "expert"}
    pools = []
    for pool in plan["pools"]:
        cut = " ".join(f"{name}{pool[degree]}" for name, degree in degrees.items() if pool[degree] > 1)
        pools.append(f"{pool['role']} {pool['replicas']} x {cut or 'TP1'}")
    tokens = plan["goodput_requests_s"] * question["output_tokens"] / plan["gpus"]
    latencies = f"TTFT {1e3 * plan['ttft_s']:.0f} ms, TPOT {1e3 * plan['tpot_s']:.1f} ms"
    return f"{tokens:.0f} tokens/s/GPU on {plan['gpus']} GPUs, {latencies}: {' + '.join(pools)}"


def _timed(words):
    """A finished process, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@command
def main(
    *,
    python: Annotated[str, "interpreter that has aiconfigurator"] = sys.executable,
    rows: Annotated[Sequence[Path] | None, "CSVs of measured closed-loop servers"] = None,
    fits: Annotated[Path | None, "file of constants without each model: predict with them too"] = None,
    every: Annotated[int, "take each Nth row"] = 1,
    replay: Annotated[bool, "predict the rows on the event engine too"] = False,
    questions: Annotated[bool, "run the documented examples of both"] = False,
) -> None:
    """Compare rows and questions."""
    probe = [python, "-c", "import aiconfigurator"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        print(f"{python} has no aiconfigurator: pip install aiconfigurator, or give --python; skipped")
        return
    if rows:
        compare_rows(rows, python, replay, fits, every)
    if questions:
        compare_questions(python)
