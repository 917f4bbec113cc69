"""Kinds of command lines of ``plan`` with odd values: sizes, deployments, fronts, days, files; and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.fuzz import serving, training
from tests.fuzz.case import Case, Kind, from_data, word
from tests.fuzz.mutate import ODD


def _flags(
    needed: Mapping[str, Sequence[str]],
    more: Mapping[str, Sequence[str]],
    first: Sequence[str],
    last: Sequence[Sequence[str]] = ((), ("--json",), ("--json",)),
) -> Kind:
    """A command line of flags with usual values (the first two), unusual and odd ones.

    Args:
        needed: values of flags that are nearly always given.
        more: values of flags that are given in a quarter of the cases.
        first: flags of every case.
        last: ends of the command line.
    """

    def make(random: Random) -> Case:
        arguments = ["plan", *first]
        for flag, values in {**needed, **more}.items():
            if random.random() < (0.97 if flag in needed else 0.25):
                usual = random.random() < 0.85
                value = random.choice(values[:2] if usual else values)
                arguments += [flag, value if random.random() < 0.95 else word(random.choice(ODD))]
        return Case((*arguments, *random.choice(last)))

    return make


SIZING = _flags(
    {
        "--model": ("gpt2", "gpt2", "none"),
        "--cluster": (
            "dgx-a100-80gb",
            "dgx-a100-80gb,dgx-h100",
            ",",
            "dgx-h100,",
            "a,b",
            "dgx-h100,dgx-h100",
        ),
        "--gpus": (
            "8..16",
            "8",
            "16..8",
            "1..",
            "..8",
            "8..8",
            "0..4",
            "7..9",
            "8..1e9",
            "1..100000000",
            "a..b",
        ),
        "--seq-len": ("1024", "1k", "0", "9M"),
        "--global-batch": ("16", "32", "1"),
        "--tokens": ("1e9", "3e8", "0", "-1", "1e30", "1e-9", "nan", "15T", "inf", "1e17"),
        "--fix": ("tensor=2", "tensor=2", "pipeline=3", "data=0"),
    },
    {
        "--days": ("10", "100", "0", "-5", "1e-9", "nan", "1e300"),
        "--objective": ("cost", "energy", "speed"),
        "--headroom": ("10%", "8GiB", "-5%", "200%", "1e30GiB"),
    },
    ("size", "--fix", "pipeline=1"),
)

DEPLOY = _flags(
    {
        "--model": ("llama3.1-8b", "llama3.1-8b", "gpt2", "none"),
        "--cluster": ("dgx-h100", "dgx-h100", "dgx-a100-80gb", "gb200-nvl72", "frontier"),
        "--gpus": ("2", "1", "3", "8", "0", "1000000000"),
        "--isl": ("1000", "200", "0", "100000", "1000000000", "-1"),
        "--osl": ("100", "20", "1", "0", "100000", "1000000000"),
        "--ttft": ("0.5", "p99=2.0", "1e-9", "0", "p42=1", "inf", "0.000001"),
        "--tpot": ("0.05", "0.03", "p50=0.1", "-1", "nan", "0.000001"),
    },
    {
        "--rate": ("4", "10", "0", "-1", "1e9", "1e-9", "nan", "inf", "1e300"),
        "--engine": ("vllm", "sglang", "trtllm", "vllm-0.6", "orca", "static", "x"),
        "--objective": ("goodput", "cost", "energy", "latency", "time"),
        "--fix": (
            "tensor=1",
            "replicas=2",
            "weights=fp8",
            "weights=fp9",
            "kv=fp8",
            "tensor=0",
            "token_budget=1",
        ),
        "--limit": ("replicas=1", "tensor=2", "max_sequences=1", "max_sequences=999999999", "x=1"),
        "--top": ("1", "3", "0", "-1", "1000000"),
    },
    ("serve", "--together", "--limit", "tensor=1"),
)

TRAINING = {
    "--model": ("gpt2", "gpt2", "none"),
    "--cluster": ("dgx-a100-80gb", "dgx-h100", "mi300x-8"),
    "--gpus": ("8", "16", "7", "0", "8..16"),
    "--seq-len": ("1024", "1k", "0", "9M"),
    "--global-batch": ("16", "32", "1", "17"),
    "--fix": ("tensor=2", "pipeline=1", "tensor=3", "zero=4"),
}
TRAINING_MORE = {
    "--precision": ("bf16", "fp16", "int4"),
    "--framework": ("torch-fsdp", "torchtitan", "none"),
    "--objective": ("cost", "energy", "speed"),
    "--headroom": ("10%", "8GiB", "-5%", "200%"),
    "--price": ("2", "0", "-1", "nan"),
}

FRONTS = _flags(
    TRAINING,
    {**TRAINING_MORE, "--top": ("1", "3"), "--save": ("out/a.yaml", "out/b.yaml")},
    ("--pareto", "--fix", "micro_batch=1"),
    ((), ("--json",), ("--html", "out/page.html"), ("--html", "out/page.html", "--json")),
)

SERVED = {
    "--model": ("gpt2", "gpt2", "llama3.1-8b", "none"),
    "--cluster": ("dgx-h100", "dgx-a100-80gb", "mi300x-8", "frontier"),
    "--gpus": ("1", "2", "3", "0", "1000000000"),
    "--isl": ("500", "200", "0", "100000", "-1"),
    "--osl": ("50", "20", "1", "0", "1000000000"),
}
SERVED_MORE = {
    "--engine": ("vllm", "sglang", "orca", "static", "x"),
    "--fix": ("tensor=1", "weights=fp8", "weights=fp9", "kv=fp8", "tensor=0", "max_sequences=1"),
    "--limit": ("tensor=1", "replicas=1", "x=1"),
}

SERVED_FRONTS = _flags(
    SERVED,
    {**SERVED_MORE, "--rate": ("4", "nan"), "--ttft": ("0.5", "x")},
    ("serve", "--pareto", "--limit", "tensor=1"),
    ((), ("--json",), ("--html", "out/page.html")),
)

DAY = {"--ttft": ("0.5", "2.0", "p99=2.0", "1e-9", "0"), "--tpot": ("0.05", "0.1", "p50=0.1", "-1", "nan")}
DAY_MORE = {
    **SERVED_MORE,
    "--cold-start": ("30", "0", "-1", "1e9", "nan", "inf"),
}
TIMETABLE = _flags(
    {
        **SERVED,
        **DAY,
        "--rates": ("2,5,9,4", "1,1", "0,0", "0,3", "", ",", "1,x", "-1,2", "1e9,1", "nan", "5", "999999,1"),
    },
    DAY_MORE,
    ("day", "--limit", "tensor=1"),
)
DAY_RUN = _flags(
    {**SERVED, **DAY, "--rates": ("0.002,0.005,0.001", "0.01,0,0.02", "0.01", "999,0", "99999")},
    DAY_MORE,
    ("day", "--limit", "tensor=1", "--refine", "1"),
)


def _days(random: Random) -> Case:
    """Timetables; some of a few requests a day, which the event engine runs."""
    return (TIMETABLE if random.random() < 0.75 else DAY_RUN)(random)


REFINED = _flags(
    TRAINING,
    {**TRAINING_MORE, "--top": ("2", "3"), "--limit": ("micro_batch=2", "x=1"), "--executor": ("local", "x")},
    ("--fix", "micro_batch=1"),
    (
        ("--refine", "1"),
        ("--refine", "2", "--json"),
        ("--refine", "1", "--store", "out/results.db", "--json"),
        ("--refine", "1", "--csv", "out/a.csv"),
    ),
)
SERVED_REFINED = _flags(
    {**SERVED, "--ttft": ("0.5", "2.0", "1e-9"), "--tpot": ("0.05", "0.1", "nan")},
    SERVED_MORE,
    ("serve", "--together", "--limit", "tensor=1"),
    (("--refine", "1", "--json"), ("--refine", "2", "--store", "out/results.db")),
)


def _refined(random: Random) -> Case:
    """Searches whose best plans the event engine runs."""
    return (REFINED if random.random() < 0.75 else SERVED_REFINED)(random)


FILES = _flags(
    TRAINING,
    {**TRAINING_MORE, "--rank": ("1", "2", "0", "999"), "--top": ("1", "3", "0")},
    ("--fix", "micro_batch=1"),
    (
        ("--save", "out/plan.yaml"),
        ("--csv", "out/plans.csv", "--all"),
        ("--html", "out/page.html", "--json"),
        ("--save", "out/plan.txt"),
        ("--csv", "out/a.csv", "--html", "out/a.csv"),
        ("--save", "/dev/null/x.yaml"),
        ("--csv", "out/a.csv", "--save", "out/a.yaml", "--html", "out/a.html"),
    ),
)


def _swept() -> list[tuple[str, dict[str, object]]]:
    """Small sweeps: of one plan, of searches, and of a served scenario."""
    training_base, served = training.BASES["scenarios"][0], serving.BASES["servings"][0]
    searched = {key: value for key, value in training.BASES["searches"][0].items() if key != "variations"}
    return [
        (
            "sweep.yaml",
            {
                "ask": "simulate",
                "scenario": training_base,
                "grid": {"workload.global_batch": [16, 64], "cluster.network.nic_gbps": [100, 400]},
            },
        ),
        ("sweep.yaml", {"ask": "plan", "scenario": searched, "grid": {"workload.seq_len": [512, 1024]}}),
        (
            "sweep.yaml",
            {
                "title": "load",
                "ask": "simulate",
                "scenario": served,
                "grid": {"workload.input": [50, 100], "seed": [1]},
            },
        ),
    ]


KINDS: dict[str, Kind] = {
    "sizing": SIZING,
    "deploy-flags": DEPLOY,
    "fronts": FRONTS,
    "served-fronts": SERVED_FRONTS,
    "days": _days,
    "plan-files": FILES,
    "refined": _refined,
    "sweep": from_data(
        _swept(),
        (
            ["sweep", "FILE", "--workers", "1", "--json"],
            ["sweep", "FILE", "--workers", "1"],
            ["sweep", "FILE", "--workers", "1", "-o", "out/table.csv"],
            ["sweep", "FILE", "--workers", "1", "--store", "out/results.db", "--json"],
        ),
    ),
}
