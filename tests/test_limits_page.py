"""docs/limits.md tells the bounds that the definitions have."""

from evidence.pages.limits import PAGE, page


def test_the_page_of_bounds_is_that_of_the_definitions():
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m benchmarks.limits"


def test_bounds_of_all_kinds_are_on_the_page():
    text = page()
    for row in (
        "| `Training` | `seq_len` | above 0 | 134,217,728 |",
        "| `Poisson` | `rate` | 1e-06 | 1e+06 |",
        "| `EngineOptions` | `token_budget` | 1 | 1,048,576 |",
        "| `Level` | `latency_s` | 0 | 0.01 |",
        "| `Engine` | `step_s` | 0 | 60 |",
    ):
        assert row in text
