"""First rows of serving questions with a rate: measured servers, beside the rows within their band.

    python -m benchmarks.first_servers [--questions 24]

Counts first rows with a mechanism that no measured server has, although a plain row shown is close enough:
its gap to the best lies within the 90th percentile of the errors of plain servers.
"""

from __future__ import annotations

import argparse
from itertools import islice

import meshwright as mw
from core.errors import MeshwrightError
from meshwright.reports.serving_evidence import short_evidence
from meshwright.reports.serving_verdict import gaps_of
from meshwright.served_errors import measured_of
from planner.serving.preferred import mechanisms

QUESTIONS = (
    ("qwen3-32b", "dgx-h100", 16, 2000, 300, 20.0, 1.0, 0.04),
    ("qwen3-32b", "dgx-h200", 8, 4000, 500, 5.0, 1.0, 0.03),
    ("qwen3-32b", "l40s-8", 8, 1000, 200, 2.0, 2.0, 0.06),
    ("llama3.1-8b", "dgx-h100", 4, 1000, 200, 20.0, 0.5, 0.03),
    ("llama3.1-8b", "dgx-a100-80gb", 8, 2000, 300, 20.0, 1.0, 0.04),
    ("llama3.1-8b", "l40s-8", 8, 1000, 200, 20.0, 1.0, 0.05),
    ("llama3.1-8b", "dgx-b200", 8, 8000, 200, 20.0, 1.0, 0.03),
    ("llama3.1-70b", "dgx-h100", 16, 2000, 300, 8.0, 1.0, 0.05),
    ("llama3.1-70b", "dgx-h100", 32, 4000, 500, 12.0, 2.0, 0.05),
    ("llama3.1-70b", "mi300x-8", 8, 2000, 300, 6.0, 2.0, 0.06),
    ("llama3.1-70b", "dgx-b200", 8, 2000, 300, 15.0, 1.0, 0.04),
    ("llama3.1-70b", "dgx-a100-80gb", 16, 2000, 300, 4.0, 2.0, 0.08),
    ("llama3.1-405b", "dgx-h200", 32, 2000, 300, 4.0, 2.0, 0.06),
    ("mixtral-8x7b", "dgx-h100", 8, 1000, 200, 10.0, 1.0, 0.04),
    ("mixtral-8x7b", "dgx-a100-80gb", 8, 1000, 200, 5.0, 1.0, 0.05),
    ("qwen3-30b-a3b", "dgx-h100", 8, 2000, 300, 20.0, 1.0, 0.03),
    ("qwen3-30b-a3b", "dgx-h200", 8, 1000, 1000, 20.0, 1.0, 0.03),
    ("gpt-oss-120b", "dgx-h100", 8, 2000, 500, 10.0, 1.0, 0.03),
    ("gpt-oss-120b", "dgx-b200", 8, 8000, 1000, 10.0, 2.0, 0.03),
    ("gpt-oss-20b", "dgx-h100", 4, 2000, 300, 30.0, 1.0, 0.03),
    ("qwen3-235b-a22b", "dgx-h200", 16, 2000, 300, 8.0, 2.0, 0.05),
    ("deepseek-v3", "dgx-h200", 16, 2000, 300, 4.0, 2.0, 0.06),
    ("deepseek-v3", "dgx-b200", 16, 1000, 1000, 8.0, 2.0, 0.05),
    ("deepseek-v3", "dgx-h200", 64, 4000, 500, 10.0, 2.0, 0.05),
)
"""Model, cluster, GPUs, prompt and output tokens, requests/s, targets of TTFT and TPOT in s."""


def first_row(question):
    """The first row of a question in words, and whether it is unmeasured beside a plain row in its band.

    Raises:
        MeshwrightError: nothing meets the targets.
    """
    names = ("model", "cluster", "gpus", "isl", "osl", "rate", "ttft", "tpot")
    answer = mw.deploy(**dict(zip(names, question, strict=True)), top=10)
    search = answer.search
    first, band = answer.best, measured_of(search.question).band
    gaps = gaps_of(search)
    close = [plan for plan, gap in zip(search.plans, gaps, strict=True) if plan.meets and gap <= band]
    words = f"{first.describe()}, gives up {100 * gaps[0]:.1f} %, {short_evidence(search, first)}"
    return words, bool(mechanisms(first)) and not all(map(mechanisms, close))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    unmeasured = answered = composed = 0
    for question in islice(QUESTIONS, parser.parse_args().questions):
        try:
            words, wrong = first_row(question)
        except MeshwrightError as error:
            print(*question, f"no plan: {error}", flush=True)
            continue
        answered, unmeasured = answered + 1, unmeasured + wrong
        composed += "no measured server has" in words
        print(*question, words, *(["[unmeasured]"] if wrong else []), flush=True)
    print(
        f"{answered} first rows: {unmeasured} unmeasured beside a measured one within its band; "
        f"{composed} with a mechanism that no measured server has"
    )


if __name__ == "__main__":
    main()
