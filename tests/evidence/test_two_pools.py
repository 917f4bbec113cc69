"""Rows of two pools, on made-up errors."""

from types import SimpleNamespace

from evidence.accuracy.two_pools import lines, two_pools


def entry(case_id, error, metric="tpot_ms_mean", **more):
    """A metric of a row that is off by an error."""
    question = SimpleNamespace(prefill=more.get("prefill", object()), speculates=more.get("drafts", False))
    flagged, group = more.get("flagged", False), more.get("group", "")
    case = SimpleNamespace(
        case_id=case_id, question=question, flagged=flagged, group=group, engine="sglang-0.5.9"
    )
    return SimpleNamespace(case=case, metric=metric, relative_error=error)


def test_rows_count_once_and_without_flags():
    found = two_pools(
        [
            entry("a", 0.1, group="g"),
            entry("again", 0.2, group="g"),
            entry("flagged", 0.3, flagged=True),
            entry("one pool", 0.4, prefill=None),
            entry("other metric", 0.5, metric="itl_ms_mean"),
        ]
    )
    assert [one.relative_error for one in found] == [0.1]


def test_lines_have_all_rows_then_those_without_drafts_then_groups():
    rows = [entry("a", 0.1), entry("b", -0.3, drafts=True), entry("a", 0.5, metric="ttft_ms_p50")]
    table = list(lines(rows, ["engine"], 1))
    assert table[2].startswith("| all | 2 |  | 20.0 / 28.0 / -10.0 | 50.0 / 50.0 / +50.0 |")
    assert table[3].startswith("| without drafts | 1 |  | 10.0 / 10.0 / +10.0 |")
    assert table[4].startswith("| sglang-0.5.9 | 2 |")
    assert len(list(lines(rows, ["engine"], 3))) == 4
