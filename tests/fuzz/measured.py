"""Kinds of broken measurements: training logs, results of benchmark clients, sites, and live servers."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.examples import AIPERF, GUIDELLM
from tests.fuzz.case import Case, Kind, from_data, from_text
from tests.fuzz.mutate import LIKELY, as_text, broken, mutated
from tests.fuzz.serving import MEASURED, table_of
from tests.fuzz.training import PLAN as PLAN_FLAGS
from tests.fuzz.training import cases_csv

TRAINED = {
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {"seq_len": 2048, "global_batch": 32},
    "framework": "torchtitan",
    "plan": {},
}
SERVED = {
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 20,
        "arrivals": {"kind": "poisson", "rate": 8},
        "input": 700,
        "output": 60,
    },
    "deployment": {"engine": "vllm-0.19", "options": {"max_context": 2048, "max_sequences": 64}},
}
MEGATRON = (
    " [2026-03-01 10:00:0{n}] iteration        {n}/     100 | consumed samples:           32 | "
    "elapsed time per iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): 410.3 | "
    "global batch size:    32 | lm loss: 1.032911E+01 |\n"
    "[Rank 0] (after 10 iterations) memory (MB) | allocated: 41000.5 | max reserved: 62000.0\n"
)
TORCHTITAN = (
    "[rank0]:[titan] 10:00:00 - root - INFO - \x1b[31mstep: {n}  loss: 12.2512  grad_norm:  3.4102  "
    "memory: 40.12GiB(50.12%)  tps: 31,{n}00  tflops: 420.10\n"
)
LOGS = [
    ("train.log", "loading ...\n" + "".join(MEGATRON.format(n=n, ms=260.5 + n) for n in range(1, 4))),
    ("train.log", "loading ...\n" + "".join(TORCHTITAN.format(n=n) for n in range(1, 4))),
]
NUMBERS = (
    ",",
    ".",
    "1.2.3",
    "0.0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "9" * 310,
    "1" * 5000,
    "",
    "1e-300",
    "5e14",
    "x",
)


def _log(random: Random) -> Case:
    """A log with numbers replaced, text broken, or all of it in one line."""
    name, text = random.choice(LOGS)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        words = text.split(" ")
        digits = [place for place, word in enumerate(words) if any(each.isdigit() for each in word)]
        if digits and random.random() < 0.7:
            words[random.choice(digits)] = random.choice((*NUMBERS, str(random.choice(LIKELY))))
            text = " ".join(words)
        else:
            text = broken(text, random)
    if random.random() < 0.05:
        text = text.replace("\n", " ") * random.choice((10, 2000))
    command = ("learn", name, *random.choice(((), ("--json",), ("-o", "out/site.yaml"))))
    return Case(command, {name: text, "plan.yaml": as_text(TRAINED, ".yaml")})


BENCH = {
    "request_rate": "inf",
    "max_concurrency": 4,
    "completed": 16,
    "total_input_tokens": 11200,
    "total_output_tokens": 960,
    "mean_ttft_ms": 76.0,
    "median_ttft_ms": 71.0,
    "mean_tpot_ms": 9.2,
    "median_tpot_ms": 9.2,
}


def _result(random: Random) -> Case:
    """A client's result, or the scenario of its server, with values changed."""
    result, server = random.choice((BENCH, AIPERF, GUIDELLM)), SERVED
    if random.random() < 0.75:
        result = mutated(result, random, random.choice((0, 1, 1, 2, 4)))
    else:
        server = mutated(server, random, random.choice((1, 1, 2)))
    text = json.dumps(result, default=str) if not _is_huge(result) else as_text(result, ".yaml")
    if random.random() < 0.2:
        text = broken(text, random)
    files = {"r.json": text, "plan.yaml": as_text(server, ".yaml")}
    return Case(("learn", "r.json", *random.choice(((), ("--json",)))), files)


def _is_huge(data: Any) -> bool:
    """Whether a whole number is too long for `json.dumps`."""
    if isinstance(data, dict | list):
        return any(_is_huge(value) for value in (data.values() if isinstance(data, dict) else data))
    return isinstance(data, int) and abs(data) > 10**4000


SITE = {
    "site_format": 1,
    "source": "mine",
    "device": "a100-sxm-80gb",
    "framework": "megatron-core",
    "factors": {"products": 1.1, "host": 2.0},
    "memory": {"factor": 1.05, "spread": 0.04},
    "parts": ["products", "memory"],
    "covariance": [[0.01, 0.002], [0.002, 0.02]],
    "residual": 0.04,
}
ALL_PARTS = {
    **SITE,
    "parts": [
        *("products", "experts", "attention", "memory", "host", "node", "network", "exchange"),
        *("overlap", "offload", "whole"),
    ],
    "covariance": [[0.01 if row == column else 0.001 for column in range(11)] for row in range(11)],
}

OK = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENTS = (
    {"choices": [{"text": "x"}]},
    {"choices": [{"text": "y"}], "usage": None},
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 8}},
)


def _server(random: Random) -> Case:
    """A live server whose list of models or stream of events is broken."""
    listed = {"data": [{"id": "tiny"}]}
    if random.random() < 0.2:
        listed = mutated(listed, random, 1)
    models = OK + json.dumps(listed, default=str)
    events = [mutated(event, random, random.choice((0, 0, 1, 2))) for event in EVENTS]
    texts = [json.dumps(event, default=str) for event in events if not _is_huge(event)]
    stream = OK + "".join(f"data: {text}\n\n" for text in texts) + "data: [DONE]\n\n"
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        stream = broken(stream, random)
    if random.random() < 0.05:
        stream = random.choice(
            (OK + "data: " + "x" * 10**6, "HTTP/1.1 100 Continue\r\n\r\n" * 5000, OK + "\n" * 10**6)
        )
    if random.random() < 0.1:
        models = broken(models, random)
    command = ("observe", "SERVER", "--seconds", "1", "--concurrency", "1,2", "--osl", "4")
    return Case((*command, *random.choice(((), ("--json",), ("-o", "out/r.jsonl")))), {}, (models, stream))


KINDS: dict[str, Kind] = {
    "log": _log,
    "log-cells": from_text(LOGS, (["learn", "FILE"],), {"plan.yaml": as_text(TRAINED, ".yaml")}),
    "learned-rows": from_text(
        [
            ("cases.csv", cases_csv()),
            (
                "closed_loop.csv",
                table_of([MEASURED["closed_loop.csv"], {**MEASURED["closed_loop.csv"], "concurrency": 8}]),
            ),
        ],
        (["learn", "FILE", "--json"], ["learn", "FILE", "-o", "out/site.yaml"]),
    ),
    "result": _result,
    "site": from_data(
        [("site.yaml", SITE), ("site.yaml", ALL_PARTS)],
        (
            [*PLAN_FLAGS, "--model", "gpt2", "--cluster", "dgx-a100-80gb", "--site", "FILE", "--json"],
            [*PLAN_FLAGS, "--model", "gpt2", "--cluster", "dgx-a100-80gb", "--site", "FILE"],
        ),
    ),
    "live-server": _server,
}
