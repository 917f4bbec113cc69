"""Processes that share a command's work."""

from planner.executors.local import in_parallel


def divided(number):
    """What NumPy warns of."""
    import numpy as np

    return float(np.float64(1.0) / np.zeros(number)[0])


def test_warnings_of_libraries_in_workers_do_not_reach_the_terminal(capfd):
    assert dict(in_parallel(divided, [(1,), (2,)], workers=2)) == {0: float("inf"), 1: float("inf")}
    assert capfd.readouterr().err == ""
