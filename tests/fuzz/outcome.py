"""One case, run in this process, and what may not happen in it."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from typer.main import get_command
from typer.testing import CliRunner

from core.errors import Notice
from meshwright.__main__ import UNEXPECTED, app
from tests.fuzz.case import ROOT, Case
from tests.fuzz.live import server_saying

HANG_S = 30
LONGEST_MESSAGE = 6000
ANSWERS = (0, 1, 2)
"""Exit codes: an answer, nothing fits, bad input."""


COMMAND = get_command(app)
"""Built once: the options of all commands take longer than most cases."""


class Hang(BaseException):
    """A case took longer than it may."""


@dataclass(frozen=True)
class Finding:
    """What should not have happened: a signature that equal faults share, and the details."""

    signature: str
    details: str = ""


def run(case: Case) -> tuple[int, Finding | None]:
    """Run a case in a folder of its own.

    Returns:
        Its exit code, and the fault that it showed, if any.
    """
    home = Path.cwd()
    with TemporaryDirectory(prefix="fuzz-") as folder:
        for name, text in case.files.items():
            (Path(folder) / name).write_bytes(text.encode("utf-8", "replace"))
        os.chdir(folder)
        try:
            with _time_limit(), ExitStack() as opened:
                if case.answers is not None:
                    url = opened.enter_context(server_saying(*case.answers))
                    arguments = tuple(url if part == "SERVER" else part for part in case.arguments)
                    case = Case(arguments, case.files)
                return _judged(case, Path(folder))
        except Hang:
            return -1, Finding("hang", f"longer than {HANG_S} s")
        finally:
            os.chdir(home)


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang

    # Processor time, as other processes may keep this one waiting; and a wait without end is a hang too.
    limits = ((signal.ITIMER_PROF, signal.SIGPROF, HANG_S), (signal.ITIMER_REAL, signal.SIGALRM, 10 * HANG_S))
    before = [signal.signal(number, stop) for _, number, _ in limits]
    for timer, _, seconds in limits:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _judged(case: Case, folder: Path) -> tuple[int, Finding | None]:
    faults: list[BaseException] = []

    def kept(error: BaseException) -> str:
        faults.append(error)
        return "fault"

    # No worker processes: they would judge nothing here, and outlive a case that hangs.
    with (
        patch("meshwright.crash_report.report_fault", kept),
        patch("os.sched_getaffinity", lambda _: {0}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=Notice)
        with patch("typer.testing._get_command", lambda _: COMMAND):
            ran = CliRunner().invoke(app, list(case.arguments), catch_exceptions=True)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        faults.append(ran.exception)
    if faults:
        return ran.exit_code, Finding(
            _signature(faults[0]), "".join(traceback.format_exception(faults[0])[-12:])
        )
    return ran.exit_code, _wrong(case, folder, ran.exit_code, ran.stdout, ran.stderr)


def _signature(error: BaseException) -> str:
    """Its kind and the last line of the project that it passed."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(ROOT))
    ]
    frames = [frame for frame in frames if "/tests/" not in frame.filename]
    at = f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else "outside"
    return f"{type(error).__name__} at {at}"


def _wrong(case: Case, folder: Path, code: int, out: str, err: str) -> Finding | None:
    if code not in ANSWERS or code == UNEXPECTED:
        return Finding(f"exit {code}", err[-500:])
    if "Traceback (most recent" in out + err:
        return Finding("traceback in the output", err[-500:])
    if len(err) > LONGEST_MESSAGE:
        return Finding("a message without end", f"{len(err)} characters: {err[:200]}")
    left = sorted(path.name for path in folder.rglob("*") if path.name not in case.files)
    if code == 2 and left:
        return Finding("files after a failure", ", ".join(left))
    if any(name.startswith(".") for name in left):
        return Finding("a temporary file is left", ", ".join(left))
    if code == 2 and not err.strip():
        return Finding("no message")
    if code == 0 and "--json" in case.arguments:
        try:
            report = json.loads(out, parse_constant=_refused)
        except ValueError as error:
            return Finding("no JSON", str(error))
        return _implausible(report)
    return None


def _refused(text: str) -> float:
    raise ValueError(f"{text} in JSON")


def _implausible(report: Any) -> Finding | None:
    """A number that no step can have, wherever a report has it."""
    for entry in _mappings(report):
        step, memory = entry.get("step_time_s"), entry.get("memory")
        if isinstance(step, int | float) and not 0 < step < math.inf:
            return Finding("a step that takes no time", str(step))
        # The usual counts take all keys of a sequence, of which causal kernels compute half.
        for name, most in (("mfu_causal", 1.0001), ("mfu", 2.0001), ("hfu", 2.0001)):
            if isinstance(entry.get(name), int | float) and not 0 <= entry[name] <= most:
                return Finding(f"{name} outside 0 to {most:.0f}", str(entry[name]))
        if (
            isinstance(memory, dict)
            and isinstance(memory.get("peak_bytes"), int | float)
            and memory["peak_bytes"] <= 0
        ):
            return Finding("a device that holds nothing", str(memory["peak_bytes"]))
        if (found := _impossible_service(entry)) is not None:
            return found
        parts = entry.get("time_breakdown_s")
        if isinstance(parts, dict) and isinstance(step, int | float):
            if min(parts.values(), default=0) < -1e-9 * step:
                return Finding("a part that takes less than no time", str(min(parts.values())))
            if abs(sum(parts.values()) - step) > 1e-6 * step:
                return Finding("parts that do not add up", f"{sum(parts.values())} of {step}")
    return None


def _impossible_service(entry: dict[str, Any]) -> Finding | None:
    """A latency, share or rate that no server can have."""
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        figures = entry.get(name)
        if not isinstance(figures, dict):
            continue
        found = [figures[key] for key in ("p50", "p90", "p99") if isinstance(figures.get(key), int | float)]
        if found != sorted(found) or min(found, default=0) < 0:
            return Finding(f"{name} out of order or below 0", str(figures))
    for name in ("kv_use", "hit_rate", "slo_share", "busy"):
        if isinstance(entry.get(name), int | float) and not 0 <= entry[name] <= 1.0001:
            return Finding(f"{name} outside 0 to 1", str(entry[name]))
    for name in ("goodput", "output_rate", "joules_per_million", "dollars_per_million"):
        if isinstance(entry.get(name), int | float) and not 0 <= entry[name] < math.inf:
            return Finding(f"{name} below 0", str(entry[name]))
    return None


def _mappings(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
        for value in data.values():
            yield from _mappings(value)
    elif isinstance(data, list):
        for value in data:
            yield from _mappings(value)


def peak_mebibytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def held_mebibytes() -> float:
    """The memory that this process holds now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 2**20


def smaller(case: Case, signature: str, tries: int = 150) -> Case:
    """A case with fewer lines that shows the same fault."""
    for name in case.files:
        lines = case.files[name].split("\n")
        size = max(len(lines) // 2, 1)
        while size and tries > 0:
            at = 0
            while at < len(lines) and tries > 0:
                kept = lines[:at] + lines[at + size :]
                tried = Case(case.arguments, {**case.files, name: "\n".join(kept)}, case.answers)
                tries -= 1
                found = run(tried)[1]
                if found is not None and found.signature == signature:
                    lines, case = kept, tried
                else:
                    at += size
            size //= 2
    return case
