"""Launch files of public repositories are read as by hand, or refused by the key that matters."""

import pytest

from evidence.accuracy.public_launches import launches, problem


@pytest.mark.parametrize("launch", launches(), ids=lambda launch: launch["path"])
def test_a_public_launch_file_is_right(launch, tmp_path):
    _, fault = problem(launch, tmp_path)
    assert not fault
