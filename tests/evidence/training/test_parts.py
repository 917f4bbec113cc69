"""Parts of a collection: which rows are kept apart, and what each part counts."""

import csv
import json

from hypothesis import given
from hypothesis import strategies as st

from evidence.training.parts import FEWEST_ROWS, kept_apart, source_of, sources
from tests.examples import PUBLISHED_RUN

NAMES = st.lists(
    st.tuples(st.sampled_from(["ONE", "TWO", "THREE"]), st.integers(0, 999)).map(lambda x: f"{x[0]}-{x[1]}"),
    unique=True,
)


@given(NAMES, st.randoms())
def test_small_sources_stay_whole_and_the_order_of_rows_does_not_count(names, random):
    apart = kept_apart(names)
    shuffled = list(names)
    random.shuffle(shuffled)
    assert kept_apart(shuffled) == apart
    for source in {source_of(name) for name in names}:
        rows = [name for name in names if source_of(name) == source]
        if len(rows) < FEWEST_ROWS:
            assert len(apart.intersection(rows)) in (0, len(rows))


def test_a_source_that_was_read_is_kept_apart_no_longer():
    assert sources().opened and all(text for text in sources().opened.values())
    for source in sources().opened:
        assert not kept_apart(f"{source}-{number}" for number in range(100))


def test_about_a_third_of_a_large_source_is_kept_apart():
    names = [f"ONE-{number}" for number in range(3000)]
    assert 900 < len(kept_apart(names)) < 1100


def test_sources_are_named_once_and_say_what_was_chosen():
    assert all(text for text in sources().chosen_on.values())
    assert all(rule.where for rule in sources().no_figure)


def test_rows_kept_apart_appear_in_figures_only(run, tmp_path):
    names = [f"NEW-{number}" for number in range(12)] + ["BS-1"]
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["case_id", *PUBLISHED_RUN])
        writer.writeheader()
        writer.writerows({"case_id": name, **PUBLISHED_RUN} for name in names)
    report = json.loads(run("validate", "--kept-apart", str(path), "--json").out)
    apart = kept_apart(names)
    assert {case["case_id"] for case in report["cases"]} == set(names) - apart
    counts = {part: figures["errors"]["n"] for part, figures in report["parts"]["all"].items()}
    assert counts["kept apart"] == len(apart) > 0
    assert sum(counts.values()) == len(names)
    assert counts["constants chosen on"] == (0 if "BS-1" in apart else 1)
