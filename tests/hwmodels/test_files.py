"""Files are there whole or not at all, and what is no plain file is never replaced by one."""

import os
import stat
import threading

import pytest

from hwmodels.errors import InputError
from hwmodels.files import whole_file, write_text


def test_a_file_appears_with_its_folders_and_nothing_beside_it(tmp_path):
    path = tmp_path / "made" / "for" / "it.txt"
    write_text(path, "whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_keeps_leading_to_the_file(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert pipe.is_fifo()


def test_a_full_device_is_one_message_and_stays_a_device(tmp_path):
    full = tmp_path / "full"
    try:
        os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))  # as /dev/full, which a failure would replace
        full.write_text("")
    except OSError:
        pytest.skip("no devices can be made here")
    with pytest.raises(InputError, match=r"full: cannot be written \(No space left on device\)"):
        write_text(full, "x" * 100)
    assert full.is_char_device()


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path, "x")
    assert list(tmp_path.iterdir()) == []
