"""``show`` lists what scenarios of post-training name, with sources."""

import pytest

from meshwright.reports.catalogues import describe, list_all
from simulator.rl.schedules import RL_SCHEDULES


@pytest.mark.parametrize("kind", ["algorithms", "rl-schedules", "rl-frameworks", "weight-transfers"])
def test_every_entry_is_listed_and_described(kind):
    report, _ = list_all(kind)
    assert len(report[kind]) >= 6
    for entry in report[kind]:
        assert describe(kind, entry["name"])[1]


def test_schedules_have_the_names_of_their_kinds():
    assert all(schedule.name == schedule.model_fields["kind"].default for schedule in RL_SCHEDULES)
