"""Estimates of AIConfigurator's SDK, run by the interpreter that has it: a JSON list in, a JSON list out.

Every question is a mapping of arguments of ``aiconfigurator.cli.api.cli_estimate``. The answer is
``{"ttft": ms, "tpot": ms, "mode": database mode}`` or ``{"error": text}``. Measured kernel times (SILICON)
are tried first, then their extension by estimates (HYBRID). The last element of the output is the CPU time,
s.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
import time

from evidence.command import command

MODES = ("SILICON", "HYBRID")


def remember_files(yaml):
    """Parse each YAML text once: an estimate reads 495 files again, which takes 1.5 CPU s."""
    load, parsed = yaml.safe_load, {}

    def safe_load(stream):
        text = stream.read() if hasattr(stream, "read") else stream
        if text not in parsed:
            parsed[text] = pickle.dumps(load(text))
        return pickle.loads(parsed[text])

    yaml.safe_load = safe_load


def answer(question, estimate):
    """One estimate, by the first database mode that has one."""
    error = ""
    for mode in MODES:
        try:
            result = estimate(**question, database_mode=mode)
        except Exception as failure:  # its exceptions have no common base
            error = error or f"{type(failure).__name__}: {failure}"
            continue
        return {"ttft": float(result.ttft), "tpot": float(result.tpot), "mode": mode}
    return {"error": error[:300]}


@command
def main():
    """Answer the questions on standard input."""
    questions = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        import yaml
        from aiconfigurator.cli.api import cli_estimate

        remember_files(yaml)
        start = time.process_time()
        answers = [answer(question, cli_estimate) for question in questions]
    json.dump([*answers, time.process_time() - start], sys.stdout)
