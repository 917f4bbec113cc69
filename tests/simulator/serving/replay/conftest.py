"""Replays over columns; guards watch the replicas' own loops, which guarded runs keep to."""

import pytest


@pytest.fixture(autouse=True)
def guards():
    """Runs here are not guarded, as users' runs are not."""
