"""The same question gives the same bytes whatever Python's seed of hashes is."""

import json
import os
import subprocess
import sys

from tests.fuzz.case import ROOT
from tests.laws.questions import Question, strategy, training

NUMBER = 60
QUESTIONS = strategy(training)
SEARCHES = True
SAY = "import json, sys, meshwright as mw; print(json.dumps(mw.simulate(json.load(sys.stdin)).to_dict()))"


def check(question: Question) -> None:
    """Ask in two processes."""
    outputs = []
    for seed in ("0", "77"):
        ran = subprocess.run(
            [sys.executable, "-c", SAY],
            input=json.dumps(question),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        outputs.append((ran.returncode, ran.stdout))
    assert outputs[0] == outputs[1]
