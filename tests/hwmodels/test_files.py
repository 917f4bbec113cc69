"""Files that are there whole or not at all, and names that are not files."""

import os
import threading

import pytest

from hwmodels.files import write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError):
        write_whole(target, b"new")
    assert os.listdir(tmp_path) == ["folder"] and target.is_dir()


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink() and real.read_text() == "new"


def test_a_pipe_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"new")
    reader.join()
    assert found == [b"new"] and pipe.is_fifo()
