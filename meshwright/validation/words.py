"""Words of published rows read by concept: a table of spellings fills columns that a row leaves blank."""

from functools import cache
from pathlib import Path

from pydantic import Field

from core.cache import read_shipped
from core.loading import Strict, build
from meshwright.validation.rows import PublishedRow, matches

WORDS_FILE = Path(__file__).with_name("words.yaml")


class Spelling(Strict):
    """Words, and the columns that they fill."""

    where: dict[str, str] = Field(description="patterns by column")
    fills: dict[str, str] = Field(description="values by column")
    assumed: str = Field("", description="what the rule guesses, if it does")


class Words(Strict):
    """The table of spellings."""

    rules: list[Spelling]


@cache
def spellings() -> list[Spelling]:
    """The shipped spellings, in order."""
    return build(Words, read_shipped(WORDS_FILE), str(WORDS_FILE)).rules


def filled(row: PublishedRow) -> PublishedRow:
    """The row with the columns that its words fill; guesses are recorded as assumed."""
    values = dict(row.values)
    guesses = []
    for rule in spellings():
        if not matches(row, rule.where):
            continue
        blank = {column: value for column, value in rule.fills.items() if not values.get(column)}
        if blank and rule.assumed:
            guesses.append(rule.assumed)
        values |= blank
    complete = PublishedRow(values, row.where)
    for what in (*row.assumed, *guesses):
        complete.assume(what)
    return complete
