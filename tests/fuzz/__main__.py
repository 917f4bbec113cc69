"""``python -m tests.fuzz --cases 20000 --seed 1``: broken inputs of every kind; exit 1 where a fault shows.

Case N of a seed is the same on every machine: ``--only N`` repeats it alone. Ctrl-C shows what was found.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from tests.fuzz.case import Case, describe
from tests.fuzz.kinds import KINDS
from tests.fuzz.outcome import Finding, held_mebibytes, peak_mebibytes, run, smaller

MOST_MEBIBYTES = 1024
TOLD_EVERY = 1000
COLLECTED_EVERY = 20
"""Cases between two collections: the traceback of a refused case holds its frames in a reference cycle."""


@dataclass
class Used:
    """Processor time and memory of the cases of a kind."""

    cases: int = 0
    seconds: float = 0.0
    kept: float = 0.0
    """MiB that the process holds more after the cases than before them."""
    largest: float = 0.0
    """MiB by which the process grew in one case."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Add the case that runs inside."""
        seconds, held = time.process_time(), held_mebibytes()
        yield
        grown = held_mebibytes() - held
        self.cases += 1
        self.seconds += time.process_time() - seconds
        self.kept += grown
        self.largest = max(self.largest, grown)


def make(seed: int, number: int, kinds: list[str]) -> tuple[str, Case]:
    """Case ``number`` of a seed: kinds take turns."""
    name = kinds[number % len(kinds)]
    return name, KINDS[name](Random(f"{seed}/{name}/{number}"))


def main() -> int:
    """Run cases, and print each fault once with a small reproducer."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to share a seed out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat this case alone, and print it")
    parser.add_argument("--by-kind", action="store_true", help="show processor time and memory of each kind")
    parser.add_argument("--kind", choices=list(KINDS), help="one kind of input alone")
    asked = parser.parse_args()
    kinds = [asked.kind] if asked.kind else list(KINDS)
    numbers = [asked.only] if asked.only is not None else range(asked.first, asked.first + asked.cases)
    found: dict[str, tuple[int, Case, Finding]] = {}
    codes, times, slowest = Counter[int](), Counter[str](), (0.0, 0)
    used = {name: Used() for name in kinds}
    started = time.monotonic()
    stopped: list[int] = []
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _: stopped.append(number))
    for number in numbers:
        if stopped:
            break
        if codes.total() % TOLD_EVERY == TOLD_EVERY - 1:
            told = f"{codes.total() + 1:,} cases, {held_mebibytes():.0f} MiB, {len(found)} faults"
            print(told, file=sys.stderr, flush=True)
        name, case = make(asked.seed, number, kinds)
        if codes.total() % COLLECTED_EVERY == 0:
            gc.collect()
        before = time.monotonic()
        with used[name].counted():
            code, finding = run(case)
        took = time.monotonic() - before
        codes[code] += 1
        slowest = max(slowest, (took, number))
        if asked.only is not None:
            print(describe(case))
        if finding is not None:
            times[finding.signature] += 1
            if finding.signature not in found:
                found[finding.signature] = (number, case, finding)
                print(f"case {number} ({name}): {finding.signature}", file=sys.stderr, flush=True)
    for signature, (number, case, finding) in found.items():
        small = case if signature == "hang" else smaller(case, signature)
        print(f"\n== {signature}: {times[signature]} times, first in case {number} of seed {asked.seed}")
        print(describe(small)[:3000])
        print(finding.details[-1500:])
    if asked.by_kind:
        print("\nkind                 cases   CPU s  kept MiB  largest case MiB")
        for name, one in sorted(used.items(), key=lambda item: -item[1].kept):
            print(f"{name:20} {one.cases:5} {one.seconds:7.1f} {one.kept:9.1f} {one.largest:17.1f}")
    peak = peak_mebibytes()
    shown = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    print(
        f"\n{codes.total()} cases in {time.monotonic() - started:.0f} s; exit codes {shown}; "
        f"slowest {slowest[0]:.1f} s (case {slowest[1]}); peak {peak:.0f} MiB; {len(found)} faults"
    )
    return int(bool(found) or peak > MOST_MEBIBYTES)


if __name__ == "__main__":
    sys.exit(main())
