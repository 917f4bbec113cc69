"""Files are there whole or not at all, and what is no plain file is never replaced by one."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core.errors import InputError
from core.files import atomic_write, write_text, written_together


def test_a_file_appears_with_its_folders_and_nothing_beside_it(tmp_path):
    path = tmp_path / "made" / "for" / "it.txt"
    write_text(path, "whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
@pytest.mark.parametrize("together", [False, True])
def test_a_killed_process_leaves_no_part_of_a_file(tmp_path, together):
    block = "written_together()" if together else "nullcontext()"
    script = (
        "import os, signal, sys\n"
        "from contextlib import nullcontext\n"
        "from pathlib import Path\n"
        "from core.files import atomic_write, write_text, written_together\n"
        f"with {block}:\n"
        f"    if {together}:\n"
        "        write_text(Path(sys.argv[1]) / 'first.txt', 'whole')\n"
        "    with atomic_write(Path(sys.argv[1]) / 'half.txt') as path:\n"
        "        path.write_text('half')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_many_files_are_written_together(tmp_path):
    with written_together():
        for number in range(300):
            write_text(tmp_path / f"{number}.txt", str(number))
        assert not list(tmp_path.glob("[0-9]*"))
    assert len(list(tmp_path.iterdir())) == 300


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


def test_files_written_together_appear_together(tmp_path):
    with written_together():
        write_text(tmp_path / "new" / "one.txt", "1")
        write_text(tmp_path / "new" / "two.txt", "2")
        assert not (tmp_path / "new" / "one.txt").exists()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["one.txt", "two.txt"]


def test_after_a_failure_none_of_the_files_written_together_appears(tmp_path):
    (tmp_path / "kept.txt").write_text("old")
    (tmp_path / "folder").write_text("no folder")
    with pytest.raises(InputError, match="cannot be written"), written_together():
        write_text(tmp_path / "kept.txt", "new")
        write_text(tmp_path / "new" / "deep" / "one.txt", "1")
        write_text(tmp_path / "folder" / "two.txt", "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "kept.txt"]
    assert (tmp_path / "kept.txt").read_text() == "old"


def test_paths_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", tmp_path / "a\0b"):
        with pytest.raises(InputError, match="cannot be written"):
            write_text(path, "x")
