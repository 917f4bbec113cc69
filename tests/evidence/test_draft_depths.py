"""The best number of drafts at a load, on made-up latencies."""

from evidence.accuracy.draft_depths import best_apart


def test_the_best_depth_is_off_by_its_place_in_the_list():
    assert best_apart({0: (3.0, 4.0), 3: (2.0, 3.0), 7: (4.0, 5.0)}) == (3, 3, 0)
    assert best_apart({0: (3.0, 4.0), 3: (3.5, 3.0), 7: (4.0, 5.0)}) == (0, 3, 1)
    assert best_apart({0: (3.0, 6.0), 1: (3.1, 5.0), 7: (4.0, 4.0)}) == (0, 7, 2)
