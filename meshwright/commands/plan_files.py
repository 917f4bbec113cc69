"""The files that ``meshwright plan`` writes: a plan as a scenario, a page, all scored plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.records import record

if TYPE_CHECKING:
    from meshwright.api.serving import DeploymentSearch
    from meshwright.jobs.rl import PostTrainingSearch
    from meshwright.results import MixedSearchResult, PlanSearch

COMMENT = """\
# Written by `meshwright plan --save`: `meshwright simulate` predicts this plan.
"""


@record()
class PlanFiles:
    """Paths to write to, where given.

    Attributes:
        save: scenario of the plan at ``rank``, counted from 1.
        html: page of the ranking.
        csv: all scored plans.
    """

    save: Path | None = None
    rank: int = 1
    html: Path | None = None
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Check the paths before the search.

        Raises:
            InputError: a scenario without a YAML suffix, or two files of one name.
        """
        from core.errors import InputError, shown_path

        if self.save is not None and self.save.suffix not in (".yaml", ".yml"):
            raise InputError(f"a scenario is a .yaml file, found {shown_path(self.save)!r}", "--save")
        paths = [path.resolve() for path in (self.save, self.html, self.csv) if path is not None]
        if len({*paths}) < len(paths):
            raise InputError("--save, --html and --csv need different files")

    def refuse(self, subject: str, *names: str) -> None:
        """Refuse files that a kind of question does not write.

        Raises:
            InputError: such a file is requested.
        """
        from core.errors import InputError

        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{subject} have no such file", f"--{name}")

    def check_rank(self, plans: int) -> None:
        """Refuse a rank below the shown plans before the search.

        Raises:
            InputError: such a rank is to be saved.
        """
        from core.errors import InputError

        if self.save is not None and self.rank > plans:
            raise InputError(
                f"{plans} plans are shown, found {self.rank}; a higher --top shows more", "--rank"
            )

    @property
    def every(self) -> bool:
        """Whether a file holds all scored plans."""
        return self.csv is not None or self.html is not None

    def write(self, search: PlanSearch) -> None:
        """Write the requested files, all or none.

        Raises:
            InputError: a file cannot be written, or there is no such rank.
        """
        from core.files import written_together
        from meshwright.commands.output import note, progress

        with written_together():
            self._save(search)
            if self.html is not None:
                search.page().write(self.html)
            if self.csv is not None and search.scored is not None:
                from meshwright.reports.scored_plans import write_scored

                with progress("writing all plans") as advance:
                    write_scored(self.csv, search.result.setting, search.scored, advance)
        for kind, path in (("scenario", self.save), ("page", self.html), ("plans", self.csv)):
            if path is not None:
                note(f"{kind} written: {path}")

    def save_scenario(self, search: DeploymentSearch) -> None:
        """Write a deployment as a scenario, if requested.

        Raises:
            InputError: the file cannot be written, or there is no such rank.
        """
        from meshwright.commands.output import note

        self._save(search)
        if self.save is not None:
            note(f"scenario written: {self.save}")

    def _save(self, search: PlanSearch | DeploymentSearch) -> None:
        if self.save is not None:
            self.write_mapping(search.scenario(self.rank - 1))

    def write_ranking(self, ranking: MixedSearchResult | PostTrainingSearch) -> None:
        """Write the page of a ranking and the scenario of a plan, where requested.

        Raises:
            InputError: a file cannot be written, or there is no such rank.
        """
        from meshwright.commands.output import note, write_page

        if self.save is not None:
            self.check_rank(len(ranking.search.plans))
            self.write_mapping(ranking.search.plans[self.rank - 1].data)
            note(f"scenario written: {self.save}")
        write_page(ranking, self.html)

    def write_mapping(self, scenario: Mapping[str, Any]) -> None:
        """Write a scenario to the requested file.

        Raises:
            InputError: the file cannot be written.
        """
        from core.files import write_text
        from core.yaml_text import yaml_text

        if self.save is not None:
            write_text(self.save, COMMENT + yaml_text(scenario))
