"""Golden predictions: what moved between two versions, by how much, and what no longer fits.

Questions: ``tests/golden/questions.yaml``, asked on the command line with ``--json``. Stored answers:
``tests/golden/answers``. The exit code is 1 where a value moved or a key is gone; new keys are only listed.

python -m benchmarks.golden --check          # the working tree against the stored answers; on another kind
                                             # of processor, against the version that stored them
python -m benchmarks.golden --write          # store the answers of the working tree
python -m benchmarks.golden --base REF       # the working tree against another version (git worktree)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = ROOT / "tests/golden/questions.yaml"
ANSWERS = ROOT / "tests/golden/answers"

RELATIVE = 1e-9
"""Largest relative difference of two figures that are the same, on one kind of processor."""
ELSEWHERE = 1e-5
"""The same between processors: matrix products are priced in single precision, and NumPy's powers are rounded
differently by other vector instructions."""
ABSOLUTE = 1e-12
"""Rounding of differences that are zero, as of a bubble that is not there."""

COMMANDS = {
    "simulate": ("simulate",),
    "engine": ("simulate", "--engine"),
    "plan": ("plan",),
    "whatif": ("whatif",),
}
"""What a question may ask, by its key ``ask``."""


def read_questions(names=()):
    """The questions by name; those whose name contains one of ``names``, or all."""
    questions = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    return {
        name: question
        for name, question in questions.items()
        if not names or any(part in name for part in names)
    }


def answer(question, folder):
    """The JSON that a command prints for one question; a refusal is an answer too.

    Args:
        question: a scenario, or ``scenario`` with the name of a shipped one; ``ask`` names the command.
        folder: where the scenario's file may be written.
    """
    from typer.testing import CliRunner

    from meshwright.__main__ import app

    question = dict(question)
    command = COMMANDS[question.pop("ask", "simulate")]
    scenario = question.get("scenario")
    if scenario is None:
        scenario = str(Path(folder) / "question.yaml")
        Path(scenario).write_text(yaml.safe_dump(question), encoding="utf-8")
    result = CliRunner().invoke(app, [*command, scenario, "--json"])
    if result.exception and not isinstance(result.exception, SystemExit):
        return {"error": f"{type(result.exception).__name__}: {result.exception}"}
    if not result.stdout:
        return {"error": result.stderr.strip().replace(str(folder), ".")}
    return json.loads(result.stdout)


def answer_all(names=()):
    """Answers of the packages that Python imports here, by name of the question."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: answer(question, folder) for name, question in read_questions(names).items()}


def stored_answers(names=()):
    """The answers that are stored, by name of the question."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(ANSWERS.glob("*.json"))
        if not names or any(part in path.stem for part in names)
    }


def write(answers):
    """Store answers: sorted keys, one line, floats in full. Answers without a question are removed."""
    ANSWERS.mkdir(parents=True, exist_ok=True)
    for path in ANSWERS.glob("*.json"):
        if path.stem not in answers:
            path.unlink()
    for name, report in answers.items():
        text = json.dumps(report, sort_keys=True, separators=(",", ":"))
        (ANSWERS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def worktree(ref):
    """A temporary working tree of another version."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), ref], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def stored_by():
    """The version that stored the answers: the last commit that changed one of them."""
    log = ["git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", str(ANSWERS)]
    return subprocess.run(log, check=True, capture_output=True, text=True).stdout.strip()


def answers_of(tree, names=()):
    """Answers of the version in a folder, from a process of its own."""
    # -P: the folder of this script does not shadow modules.
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--answers", *names]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, env=environment, cwd=tree, check=True, stdout=subprocess.PIPE)
    return json.loads(ran.stdout)


def leaves(value, path="") -> Iterator[tuple[str, object]]:
    """Key paths and values of nested JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield f"{path}.#", len(value)
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{index}")
    else:
        yield path, value


@dataclass(order=True)
class Move:
    """One value that differs: ``share`` is the relative change, infinite where a value is no number."""

    share: float
    question: str
    key: str
    before: object = field(compare=False)
    after: object = field(compare=False)


@dataclass
class Differences:
    """What differs between two sets of answers."""

    moves: list[Move] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    @property
    def same(self):
        """Whether nothing moved, nothing is gone and all that fitted fits."""
        return not (self.moves or self.unfit or self.gone)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def change(before, after, tolerance=RELATIVE):
    """Relative change of a value; 0 where it is the same, infinite where words or numbers of zero differ."""
    if _is_number(before) and _is_number(after):
        apart = abs(before - after)
        if apart <= ABSOLUTE + tolerance * max(abs(before), abs(after)):
            return 0.0
        return apart / abs(before) if before else float("inf")
    return 0.0 if before == after else float("inf")


def compare(before, after, tolerance=RELATIVE):
    """Compare two sets of answers, by name of the question."""
    differences = Differences()
    differences.gone += [f"{name}: the whole answer" for name in before.keys() - after.keys()]
    differences.new += [f"{name}: the whole answer" for name in after.keys() - before.keys()]
    for name in sorted(before.keys() & after.keys()):
        old, new = dict(leaves(before[name])), dict(leaves(after[name]))
        differences.gone += [f"{name}: {key}" for key in old.keys() - new.keys()]
        differences.new += [f"{name}: {key}" for key in new.keys() - old.keys()]
        for key in old.keys() & new.keys():
            if share := change(old[key], new[key], tolerance):
                differences.moves.append(Move(share, name, key, old[key], new[key]))
        if _fits(old) and not _fits(new):
            differences.unfit.append(name)
    differences.moves.sort(reverse=True)
    return differences


def _fits(values):
    """Whether a question has a plan that fits: that which was asked about, or any that a search found."""
    if "error" in values:
        return False
    if "plans.#" in values:
        return values["plans.#"] > 0
    return values.get("memory.fits", True)


def _share(share):
    if share == float("inf"):
        return "-"
    return f"{share:.2%}" if share >= 1e-4 else f"{share:.1e}"


def _short(value):
    return f"{value:.8g}" if isinstance(value, float) else str(value)[:60]


def _keys(heading, keys, limit):
    if keys:
        print(f"\n{heading} ({len(keys)}):")
        print("\n".join(f"  {key}" for key in sorted(keys)[:limit]))
        if len(keys) > limit:
            print(f"  ... and {len(keys) - limit} more (--top)")


def report(differences, answers, limit):
    """Print a comparison, the largest changes first."""
    if differences.moves:
        questions = {move.question for move in differences.moves}
        print(f"{len(differences.moves)} values of {len(questions)} questions moved, of {answers} questions:")
        for move in differences.moves[:limit]:
            values = f"{_short(move.before)} -> {_short(move.after)}"
            print(f"  {_share(move.share):>9}  {move.question}: {move.key}  {values}")
        if len(differences.moves) > limit:
            print(f"  ... and {len(differences.moves) - limit} more (--top)")
        steps = [move for move in differences.moves if move.key.endswith("step_time_s")]
        largest = max((move.share for move in steps), default=0.0)
        print(f"\nstep times that moved: {len(steps)}, by at most {largest:.3g} of the step")
    _keys("fitted before and no longer does", differences.unfit, limit)
    _keys("keys that are gone", differences.gone, limit)
    _keys("keys that are new", differences.new, limit)
    if differences.same:
        print(f"{answers} questions: no value moved by more than {RELATIVE:g}")


def arguments():
    """What is compared with what."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="compare with the stored answers")
    mode.add_argument("--write", action="store_true", help="store the answers of the working tree")
    mode.add_argument("--base", metavar="REF", help="compare with another version")
    mode.add_argument("--answers", action="store_true", help="print the answers as JSON")
    parser.add_argument("--top", type=int, default=40, help="lines of each list (default 40)")
    parser.add_argument("names", nargs="*", help="parts of names of questions; default all")
    return parser.parse_args()


def main():
    """Compare or store; the exit code is 1 where anything moved."""
    options = arguments()
    if options.base:
        with worktree(options.base) as tree:
            before = answers_of(tree, options.names)
    else:
        before = stored_answers(options.names)
    after = answer_all(options.names)
    if options.answers:
        json.dump(after, sys.stdout)
        return
    if options.write and options.names:
        after = {**stored_answers(), **after}
    differences = compare(stored_answers() if options.write else before, after)
    if options.check and not differences.same and compare(before, after, ELSEWHERE).same:
        # The stored answers may be those of another kind of processor: ask their version on this one.
        version = stored_by()
        print(f"within {ELSEWHERE:g} of the stored answers; compared with {version[:12]} on this processor:")
        with worktree(version) as tree:
            differences = compare(answers_of(tree, options.names), after)
    report(differences, len(after), options.top)
    if options.write:
        write(after)
    elif not differences.same:
        sys.exit(1)


if __name__ == "__main__":
    main()
