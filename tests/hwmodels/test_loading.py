"""The strict loader: what YAML it reads as what, and what each kind of bad file says."""

from __future__ import annotations

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from hwmodels.errors import InputError, UnknownNameError, suggestion
from hwmodels.loading import Catalogue, Strict, build, parse_text, read_mapping

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
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


@given(plain)
def test_json_is_read_as_json_reads_it(value):
    assert parse_text(json.dumps(value), "x") == value


@given(st.dictionaries(st.text("abcdefgh", min_size=1), st.integers() | st.floats(allow_nan=False)))
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
