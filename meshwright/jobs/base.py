"""What every kind of question can be asked: one record of functions a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from meshwright.exporters.base import ExportQuestion
    from meshwright.pages.page import Page
    from meshwright.variations.answer import Outcome, Remaining
    from planner.execution import Execution

Question = tuple[Mapping[str, Any], str, Path]
"""A scenario's keys and values, its name in errors, and the folder of its relative paths."""
RULES_OF_TRAINING = "rules of releases are about training plans"
"""Why a job does not take rules to allow."""


@dataclass(frozen=True)
class AskOptions:
    """How a scenario is asked.

    Attributes:
        engine: run the event engine too, where a closed form would do.
        detail: maximum number of kernels and collectives that the engine runs as separate tasks.
        replications: times that a run of weeks is drawn, in place of the scenario's.
        trace: file or folder of a trace that will be written.
        typed: whether variations were typed, and are named as such in errors.
        named: the scenario as it was named; empty for a mapping.
        progress: called with the finished share.
        notice: called with lines before a long answer.
    """

    engine: bool = False
    detail: int = 100_000
    replications: int | None = None
    trace: Path | None = None
    typed: bool = False
    named: str = ""
    progress: Callable[[float], None] | None = None
    notice: Callable[[str], None] | None = None


class Answered(Protocol):
    """An answered scenario; ``to_dict`` is what ``--json`` prints, ``page`` what ``--html`` writes."""

    def to_dict(self) -> dict[str, Any]: ...

    def page(self) -> Page: ...


class Inquirer(Protocol):
    """A scenario with variations, answered one by one."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines to print before."""
        ...

    def base(self, progress: Callable[[float], None] | None = None) -> tuple[list[Outcome], Remaining]:
        """Answered the base; returns what remains, with its estimated time."""
        ...

    def variations(self, work: Remaining) -> Iterator[tuple[int, Outcome]]:
        """Answered the variations; yields the number of each in the file."""
        ...

    def comparison(self, outcomes: Sequence[Outcome], interrupted: bool = False) -> Any:
        """The result: a `meshwright.result_base.Result`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """How one kind of question is answered.

    Attributes:
        kind: its name in `simulator.kinds`.
        waits: word for what progress bars count.
        drawn_words: added to notices of a long answer where files are written.
        planned_by: the question of `plan` that its scenarios ask: train, serve or rl; empty: no search.
        answer: of a scenario; raises InputError, and InfeasibleError where it cannot run at all.
        tables: of an answer, for people.
        files: writers of an answer's files, by flag: trace, requests.
        unread: flags that it does not read, with the reason.
        model: the model of an answer and its sequence length (0: none), of which what is assumed is said.
        shortage: why an answer is none: it does not fit, or does not finish; empty if it does.
        interrupted: what had ended when Ctrl-C stopped an answer; empty if nothing did.
        inquiry: a scenario with variations.
        over_seeds: whether its comparisons run over seeds.
        row: flat figures of a point of a sweep that asks ``plan`` or ``simulate``.
        export: the question of exporters, from a command line for comments and the rules that are allowed.
    """

    kind: str
    waits: str
    planned_by: Literal["train", "serve", "rl", ""]
    answer: Callable[[Question, AskOptions], Answered]
    tables: Callable[[Any], Sequence[Any]]
    files: Mapping[str, Callable[[Any, Path], None]]
    drawn_words: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    model: Callable[[Any], tuple[Any, int] | None] = lambda answer: None
    shortage: Callable[[Any], str] = lambda answer: ""
    interrupted: Callable[[Any], str] = lambda answer: ""
    inquiry: Callable[[Question, AskOptions, Execution | None], Inquirer]
    over_seeds: bool = False
    row: Callable[[str, Question], Mapping[str, Any]]
    export: Callable[[Question, str, Sequence[str] | None], ExportQuestion]
