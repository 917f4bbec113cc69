"""The strict loader: what YAML it reads as what, and what each kind of bad file says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from core.bounds import DEEPEST, LARGEST, MOST_BYTES, SMALLEST
from core.errors import InputError, UnknownNameError, suggestion
from core.loading import Catalogue, Strict, build, parse_text, read_mapping

sizes = st.floats(allow_nan=False, min_value=-LARGEST, max_value=LARGEST).filter(
    lambda value: value == 0 or abs(value) >= SMALLEST
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | sizes
    | st.text(st.characters(codec="ascii")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefgh", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


class Inner(Strict):
    width: float


class Outer(Strict):
    name: str
    inner: Inner | None = None
    parts: list[Inner] = Field(default_factory=list)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(plain)
def test_json_is_read_as_json_reads_it(value):
    assert parse_text(json.dumps(value), "x") == value


@given(st.dictionaries(st.text("abcdefgh", min_size=1), st.integers(-(10**18), 10**18) | sizes))
def test_what_yaml_writes_is_read_back(value):
    assert parse_text(yaml.safe_dump(value), "x") == (value or {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("400e9", 4e11),
        ("-1.5E-3", -0.0015),
        ("1_000", 1000),
        ("0777", 777),
        ("on", "on"),
        ("NO", "NO"),
        ("12:30:00", "12:30:00"),
        ("2026-01-01", "2026-01-01"),
        (".inf", math.inf),
        ("true", True),
        ('"1e9"', "1e9"),
    ],
)
def test_numbers_are_numbers_and_words_are_words(text, value):
    found = parse_text(f"key: {text}", "x")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' is given twice"),
        ("a: [1, 2", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("? [1, 2]\n: x", "a key must be a plain name"),
    ],
)
def test_broken_yaml_names_file_and_line(text, words):
    with pytest.raises(InputError, match=r"plan\.yaml") as caught:
        parse_text(text, "plan.yaml")
    assert words in str(caught.value)


BOMB = "a0: &a0 x\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(9))
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 10)}]}}\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title: !!int foo", "!!int"),
        ("title: !!float foo", "!!float"),
        ("title: !!bool foo", "!!bool"),
        ("title: !!timestamp foo", "!!timestamp"),
        ("title: !!timestamp 2026-99-99", "!!timestamp"),
        ("title: !!timestamp 2026-01-01", "title: a date"),
        ("title: !!binary aGVsbG8=", "title: a bytes"),
        ("title: !!set {a, b}", "title: a set"),
        (f"gpus: {'1' * 5000}", "line 1: a number of 5,000 digits"),
        (f"{'1' * 100}: x", "line 1: a number of 100 digits"),
        ("a: {b: [1, 9223372036854775808]}", "a.b.1: a number from 1e-24 to 1e+18"),
        ("a: -1e30", "a: a number from"),
        ("a: 1e-300", "a: a number from"),
        ("a: " + "[" * 20_000, f"deeper than {DEEPEST}"),
        ("a: " + "[" * 100 + "]" * 100, f"deeper than {DEEPEST}"),
        ("a: " + "{a: " * 3_000 + "1" + "}" * 3_000, f"deeper than {DEEPEST}"),
        ("a:\n" + "- " * 20_000 + "1", f"deeper than {DEEPEST}"),
        ("".join(f"{' ' * n}a:\n" for n in range(300)) + " " * 300 + "1", f"deeper than {DEEPEST}"),
        (BOMB, "more than 100,000 values"),
        ("a: &a [*a]", "not valid YAML"),
        ("a: {<<: [1]}", "line 1: << needs a mapping"),
        ("a: {<<: 1}", "line 1: << needs a mapping"),
    ],
    ids=lambda value: value[:30],
)
def test_yaml_out_of_bounds_is_refused(text, words):
    with pytest.raises(InputError, match=r"plan\.yaml") as caught:
        parse_text(text, "plan.yaml")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_mapping_merged_many_times_counts_once():
    assert parse_text(MERGES, "plan.yaml") == {f"a{n}": {"x": 1} for n in range(10)}


def test_keys_of_two_merged_mappings_are_given_twice():
    with pytest.raises(InputError, match="'x' is given twice"):
        parse_text("a: &a {x: 1}\nb: &b {x: 2}\nc: {<<: [*a, *b]}", "plan.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": ' + "1" * 5000 + "}", "a number of 5,000 digits"),
        ('{"a": ' * 200_000, f"deeper than {DEEPEST}"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", f"deeper than {DEEPEST}"),
        ('{"a": 1e300}', "a: a number from"),
        ('{"a": [' + "1," * 200_000 + "1]}", "more than 100,000 values"),
    ],
    ids=lambda value: value[:30],
)
def test_json_out_of_bounds_is_refused(tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="config") as caught:
        read_mapping(path)
    assert words in str(caught.value)


def test_a_message_shows_a_large_value_without_expanding_it():
    bomb: list = ["x"]
    for _ in range(30):
        bomb = [bomb] * 10
    with pytest.raises(InputError) as caught:
        build(Outer, {"name": bomb, "inner": {"width": "y" * 10**6}}, "file.yaml")
    assert len(str(caught.value)) < 400


def test_brackets_inside_text_are_no_nesting():
    assert parse_text("a: '" + "[" * 500 + "'", "x") == {"a": "[" * 500}


def test_files_have_a_largest_size(tmp_path):
    (tmp_path / "large.yaml").write_text("a: 1\n#" + "x" * MOST_BYTES)
    for path in (tmp_path / "large.yaml", Path("/dev/zero")):
        with pytest.raises(InputError, match="larger than 4 MiB"):
            read_mapping(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"name": "a", "iner": {"width": 1}}, "unknown key 'iner'; did you mean 'inner'?"),
        (
            {"name": "a", "inner": {"widht": 1.0, "width": 2.0}},
            "inner: unknown key 'widht'; did you mean 'width'?",
        ),
        ({"name": "a", "parts": [{"width": "1e9"}]}, "parts.0.width"),
        ({"name": "a", "inner": {"width": math.nan}}, "inner.width"),
        ({}, "key 'name' is missing"),
        ([1], "a mapping of keys to values is needed"),
    ],
)
def test_a_wrong_definition_names_the_key(data, words):
    with pytest.raises(InputError) as caught:
        build(Outer, data, "file.yaml")
    assert str(caught.value).startswith("file.yaml")
    assert words in str(caught.value)


def test_all_problems_are_told_at_once():
    with pytest.raises(InputError) as caught:
        build(Outer, {"nam": "a", "inner": {"width": "x"}}, "file.yaml")
    assert str(caught.value).count("\n") >= 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut.json", '{"layers": 3,', "not valid JSON, perhaps cut off"),
        ("twice.json", '{"a": 1, "a": 2}', "key 'a' is given twice"),
        ("empty.yaml", "", "found an empty file"),
        ("list.yaml", "- 1", "found a list"),
    ],
)
def test_unusable_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=name) as caught:
        read_mapping(path)
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for path, words in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "folder"),
        (Path("a/\0b.yaml"), "null"),
        (tmp_path / "bytes.yaml", "UTF-8"),
    ):
        with pytest.raises(InputError, match=words):
            read_mapping(path)


def test_a_catalogue_takes_names_paths_and_definitions(tmp_path):
    (tmp_path / "many.yaml").write_text("entries:\n- {name: one}\n- {name: two, inner: {width: 2}}\n")
    catalogue = Catalogue("thing", tmp_path, Outer)
    own = tmp_path / "own.yaml"
    assert catalogue.names() == ["one", "two"]
    assert catalogue.get("two").inner == Inner(width=2)
    own.write_text("name: own\n")
    assert catalogue.get(own).name == "own"
    assert catalogue.get({"name": "inline"}).name == "inline"
    with pytest.raises(UnknownNameError, match="unknown thing 'tow'; did you mean 'two'"):
        catalogue.get("tow")


def test_suggestions_list_the_choices_when_nothing_is_near():
    assert suggestion("zzzzzz", ["a", "b"]) == "; allowed: a, b"
