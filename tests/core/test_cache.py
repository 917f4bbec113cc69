"""The cache of parsed catalogues: the same data, never stale, never in the way."""

import json
import os

import pytest

from core import cache
from core.errors import InputError
from core.parsing import read_mapping
from simulator.frameworks import frameworks

TEXT = "name: one\n64: {true: [1, 2.5, null], text: 1e-7}\nlist: [{2: a}, {b: {3: c}}]\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that counts as installed, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "INSTALLED", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path / "data"


def kept(folder):
    return list((folder.parent / "cache" / "meshwright").glob("*.json"))


def unparsed(monkeypatch):
    def parsed(path):
        raise AssertionError(f"{path} was parsed again")

    monkeypatch.setattr(cache, "read_mapping", parsed)


def test_the_cache_holds_what_parsing_gives(folder, monkeypatch):
    parsed = read_mapping(folder / "one.yaml")
    assert cache.read_folder(folder) == {"one.yaml": parsed}
    unparsed(monkeypatch)
    again = cache.read_folder(folder)
    assert again == {"one.yaml": parsed}
    assert [type(key) for key in again["one.yaml"]] == [str, int, str]
    assert type(next(iter(again["one.yaml"][64]))) is bool


def test_shipped_catalogues_come_from_the_cache_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for found in (cache.read_folder(frameworks.folder), cache.read_folder(frameworks.folder)):
        assert found == {path.name: read_mapping(path) for path in sorted(frameworks.folder.glob("*.yaml"))}
    assert [path.suffix for path in (tmp_path / "meshwright").iterdir()] == [".json"]


@pytest.mark.parametrize("change", ["edited", "added", "removed", "renamed"])
def test_changed_files_are_parsed_again(folder, change):
    cache.read_folder(folder)
    one = folder / "one.yaml"
    stat = one.stat()
    if change == "edited":
        one.write_text(TEXT.replace("one", "two"), encoding="utf-8")
        os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "added":
        (folder / "two.yaml").write_text("name: two\n", encoding="utf-8")
    elif change == "removed":
        one.unlink()
    else:
        one.rename(folder / "two.yaml")
    expected = {path.name: read_mapping(path) for path in sorted(folder.glob("*.yaml"))}
    assert cache.read_folder(folder) == expected == cache.read_folder(folder)
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": "x", "files": {}}', "[" * 100_000, "\x00"])
def test_a_broken_cache_is_replaced(folder, text):
    cache.read_folder(folder)
    (path,) = kept(folder)
    path.write_text(text, encoding="utf-8")
    assert cache.read_folder(folder)["one.yaml"]["name"] == "one"
    assert json.loads(path.read_text(encoding="utf-8").partition("\n")[2])["one.yaml"]


def test_without_a_place_to_write_there_is_no_cache_and_no_error(folder, monkeypatch):
    blocked = folder.parent / "cache"
    blocked.write_text("a file where the folder would be")
    assert cache.read_folder(folder)["one.yaml"]["name"] == "one"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.read_folder(folder)["one.yaml"]["name"] == "one"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    assert cache.read_folder(folder)["one.yaml"]["name"] == "one"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files")
def test_a_cache_of_somebody_else_is_not_read(folder, monkeypatch):
    (folder / "one.yaml").write_text("name: one\n", encoding="utf-8")
    cache.read_folder(folder)
    (path,) = kept(folder)
    seal, _, text = path.read_text(encoding="utf-8").partition("\n")
    body = text.replace('"name": "one"', '"name": "planted"').encode()
    path.write_bytes(cache._seal(seal.split()[0], body) + b"\n" + body)
    assert cache.read_folder(folder)["one.yaml"]["name"] == "planted"  # one's own files are trusted
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert cache.read_folder(folder)["one.yaml"]["name"] == "one"


def test_folders_of_users_are_not_cached_and_errors_name_the_file(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("mine")
    (other / "mine.yaml").write_text("name: mine\n", encoding="utf-8")
    assert cache.read_folder(other) == {"mine.yaml": {"name": "mine"}}
    assert kept(folder) == []
    (folder / "bad.yaml").write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.yaml: line"):
        cache.read_folder(folder)


def test_a_flipped_digit_in_the_cache_is_not_believed(folder):
    parsed = cache.read_folder(folder)
    (path,) = kept(folder)
    path.write_bytes(path.read_bytes().replace(b"2.5", b"2.6"))
    assert cache.read_folder(folder) == parsed
