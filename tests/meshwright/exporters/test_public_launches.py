"""Launch files of each kind are read as by hand, or refused by the key that matters."""

import pytest

from evidence.accuracy.public_launches import launches, problem
from tests.meshwright.exporters.launch_files import FILES


@pytest.mark.parametrize("launch", FILES, ids=lambda launch: launch["path"])
def test_a_launch_file_is_right(launch, tmp_path):
    path = tmp_path / launch["path"]
    path.write_text(launch["text"], encoding="utf-8")
    _, fault = problem(launch, path)
    assert not fault


def test_public_files_are_named_by_commit_and_have_a_right_answer():
    for launch in launches():
        assert len(launch["commit"]) == 40
        assert ("right" in launch) != ("refused" in launch)
