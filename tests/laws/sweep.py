"""Asking a law many random questions, and making the first broken one small."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, assume, given, settings

from core.errors import InfeasibleError, InputError
from tests.laws.questions import Question
from tests.laws.registry import Law

MOST_QUESTIONS = 1_000_000
SHRINK_S = 120.0
"""Seconds spent on a smaller question."""


def cpu_s() -> float:
    """Processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


class TimeIsUp(BaseException):
    """Ends hypothesis's loop: it takes every `Exception` for a finding."""


@dataclass
class Tally:
    """What a law's questions said."""

    answered: int = 0
    refused: int = 0
    """Questions without an answer, which decide nothing."""
    violations: int = 0
    seconds: float = 0.0
    """Processor time."""
    smallest: Question | None = None
    """The smallest question that breaks the law."""
    problem: str = ""
    """What is wrong with the answer to it."""


class Journal:
    """Verdicts of laws at one commit, in a file of JSON lines that a sweep which was ended goes on from.

    Args:
        path: the file; None keeps nothing.
        commit: only its verdicts are read.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line of it is no verdict.
    """

    def __init__(self, path: Path | None = None, commit: str = "") -> None:
        self.path, self.commit = path, commit
        self._verdicts: dict[str, dict[str, str | None]] = {}
        if path is None or not path.exists():
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                at, name, question, said = json.loads(line)
            except (TypeError, ValueError):
                raise ValueError(f"no verdict of a law: {line[:60]!r}") from None
            if at == commit:
                self._verdicts.setdefault(name, {})[question] = said

    def of(self, law: Law) -> dict[str, str | None]:
        """Verdicts of a law by question."""
        return self._verdicts.setdefault(law.name, {})

    def write(self, law: Law, question: str, said: str | None) -> None:
        """Append a verdict."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self.commit, law.name, question, said]) + "\n")


def verdict(law: Law, question: Question) -> str | None:
    """How a question breaks a law; "" where it does not, None where the question has no answer."""
    try:
        law.check(question)
    except (InputError, InfeasibleError):
        return None
    except Exception as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def sweep(
    law: Law,
    seed: int,
    *,
    questions: int | None = None,
    seconds: float | None = None,
    shrink_s: float = SHRINK_S,
    journal: Journal | None = None,
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Ask random questions of a seed until their number, or the processor time, is reached.

    Args:
        law: the law.
        seed: any whole number; with ``questions``, the same seed asks the same questions.
        questions: most questions that have an answer.
        seconds: most processor time.
        shrink_s: most time for a smaller question, where the law is broken.
        journal: verdicts of an earlier sweep, which are not asked again; it keeps those of this one.
        told: called after every answered question.
    """
    tally, started = Tally(), cpu_s()
    verdicts = (journal or Journal()).of(law)
    seen: set[str] = set()

    def ask(question: Question) -> str | None:
        key = json.dumps(question, sort_keys=True)
        if key not in verdicts:
            verdicts[key] = verdict(law, question)
            if journal is not None:
                journal.write(law, key, verdicts[key])
        return verdicts[key]

    def count(question: Question) -> None:
        if seconds is not None and cpu_s() - started > seconds:
            raise TimeIsUp
        key = json.dumps(question, sort_keys=True)
        repeated = key in seen
        seen.add(key)
        problem = ask(question)
        tally.refused += problem is None and not repeated
        # A repeated question is no further evidence, and does not use up the number of questions either.
        assume(problem is not None and not repeated)
        tally.answered += 1
        tally.violations += bool(problem)
        keep(question, problem)
        told(tally)

    def keep(question: Question, problem: str | None) -> None:
        """The smallest question that breaks the law: a search for smaller ones may find none in its time."""
        if problem and (tally.smallest is None or _size(question) < _size(tally.smallest)):
            tally.smallest, tally.problem = question, problem

    _drawn(law, seed, questions or MOST_QUESTIONS, count, (Phase.generate,))
    if tally.violations:
        ends = cpu_s() + shrink_s

        def find(question: Question) -> None:
            if cpu_s() > ends:
                raise TimeIsUp
            problem = ask(question)
            assume(problem is not None)
            keep(question, problem)
            assert not problem

        _drawn(law, seed, questions or MOST_QUESTIONS, find, (Phase.generate, Phase.shrink))
    tally.seconds = cpu_s() - started
    return tally


def _drawn(
    law: Law, seed: int, most: int, judge: Callable[[Question], Any], phases: tuple[Phase, ...]
) -> None:
    """Pass questions of a seed to a judge until it raises; its assertions are hypothesis's findings."""
    of_law = int.from_bytes(hashlib.sha256(f"{seed}/{law.name}".encode()).digest()[:8], "big")

    @hypothesis.seed(of_law)
    @settings(
        max_examples=most,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(law.questions)
    def test(question: Question) -> None:
        judge(question)

    try:
        test()
    except (TimeIsUp, AssertionError, hypothesis.errors.Unsatisfiable):
        return


def _size(question: Question) -> int:
    return len(json.dumps(question))
