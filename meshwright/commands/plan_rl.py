"""``meshwright plan rl``: devices, layouts and schedule of post-training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.commands.plan_flags import RlFlags

ASKED = ("model", "cluster", "gpus", "framework", "isl", "osl")


def plan_rl(flags: RlFlags, files: PlanFiles) -> None:
    """Search plans of post-training, print them, and write the page and the scenario of one where asked.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong key or value, or a file cannot be written.
    """
    from meshwright.commands.output import note, print_json, progress, show_tables
    from meshwright.jobs.rl import search
    from meshwright.questions.post_training import rl_question, workload_words

    question = rl_question(flags.scenario, {name: getattr(flags, name) for name in ASKED})
    if not flags.scenario:
        note(f"workload: {workload_words(question[0]['workload'])}")
    with progress("searching") as advance:
        ranking = search(question, flags.staleness, flags.top, advance)
    if flags.json:
        print_json(ranking.to_dict())
    else:
        show_tables(*ranking._tables())
    if files.html is not None:
        ranking.page().write(files.html)
        note(f"page written: {files.html}")
    if files.save is not None:
        files.check_rank(len(ranking.search.plans))
        files.write_mapping(ranking.search.plans[files.rank - 1].data)
        note(f"scenario written: {files.save}")
