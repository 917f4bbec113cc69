"""Point files: what is written is read back, and what is wrong is named by file, line and column."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from profiles import points

GEMM = points.TABLES["gemm"]
HEADER = "gpu,dtype,m,n,k,time_us,source\n"
LINE = "h100-sxm,bf16,4096,4096,4096,212.5,lab\n"


def gemm_file(tmp_path, text, name="gemm.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_left_out_take_their_defaults(tmp_path):
    found = points.read(gemm_file(tmp_path, HEADER + LINE))
    assert list(found.rows()) == [
        {
            "gpu": "h100-sxm",
            "dtype": "bf16",
            "layout": "forward",
            "m": 4096,
            "n": 4096,
            "k": 4096,
            "time_us": 212.5,
            "spread": 0.0,
            "source": "lab",
        }
    ]


def test_any_order_and_zipped(tmp_path):
    plain = points.read(gemm_file(tmp_path, HEADER + LINE))
    path = tmp_path / "gemm.csv.gz"
    shuffled = "time_us,k,n,m,dtype,gpu,source,split\n212.5,4096,4096,4096,bf16,h100-sxm,lab,dev\n"
    path.write_bytes(gzip.compress(shuffled.encode()))
    assert list(points.read(path).rows()) == list(plain.rows())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER.replace("dtype", "type") + LINE, r"line 1: unknown column 'type'; did you mean 'dtype'"),
        (HEADER.replace("time_us", "time_ms") + LINE, r"line 1: column 'time_ms': times are in microseconds"),
        (HEADER.replace(",k,", ",n,") + LINE, r"line 1: column 'n' is given twice"),
        ("gpu,dtype,m,n,time_us\na,bf16,1,1,1\n", r"line 1: column 'k' is missing"),
        (
            HEADER + LINE + LINE.replace("212.5", "-1"),
            r"line 3, column time_us: a time above 0 .*'-1'",
        ),
        (HEADER + LINE.replace("212.5", "0"), r"line 2, column time_us: a time above 0"),
        (HEADER + LINE.replace("212.5", "nan"), r"line 2, column time_us: .* found 'nan'"),
        (HEADER + LINE.replace("212.5", "212.5 us"), r"line 2, column time_us: .* found '212.5 us'"),
        (HEADER + LINE.replace("4096,212", "40.5,212"), r"line 2, column k: a whole number"),
        (HEADER + LINE.replace("h100-sxm", ""), r"line 2, column gpu: a name is needed"),
        (HEADER + LINE + "h100-sxm,bf16\n", r"line 3: 7 values are needed, found 2"),
        (
            "gpu,dtype,layout,m,n,k,time_us\na,bf16,sideways,1,1,1,1\n",
            r"line 2, column layout: forward or dgrad or wgrad is needed, found 'sideways'",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = gemm_file(tmp_path, text)
    with pytest.raises(InputError, match=message) as raised:
        points.read(path)
    assert str(path) in str(raised.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        points.read(tmp_path / "gemm.csv")
    broken = tmp_path / "gemm.csv.gz"
    broken.write_bytes(gzip.compress((HEADER + LINE * 100).encode())[:60])
    with pytest.raises(InputError, match="not a readable CSV"):
        points.read(broken)
    with pytest.raises(InputError, match="is not named after a table; did you mean 'gemm'"):
        points.read(gemm_file(tmp_path, HEADER, "gemms.csv"))


SIZES = st.integers(1, 2**31)
ROWS = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(["h100-sxm", "b200", "a,b"]),
        "dtype": st.sampled_from(["bf16", "fp8"]),
        "layout": st.sampled_from(["forward", "dgrad", "wgrad"]),
        "m": SIZES,
        "n": SIZES,
        "k": SIZES,
        "time_us": st.floats(1e-3, 1e9),
        "spread": st.floats(0, 10),
        "source": st.sampled_from(["", "lab", 'a "quoted" one']),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_written_whole_or_one_by_one_it_reads_the_same(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("points")
    assert points.write(folder / "whole.csv", GEMM, rows) == len(rows)
    points.write(folder / "zipped.csv.gz", GEMM, rows)
    for row in rows:
        points.append(folder / "single.csv", GEMM, row)
    assert (folder / "whole.csv").read_bytes() == (folder / "single.csv").read_bytes()
    found = points.read(folder / "whole.csv", GEMM)
    assert list(points.read(folder / "zipped.csv.gz", GEMM).rows()) == list(found.rows())
    for row, read in zip(rows, found.rows(), strict=True):
        assert GEMM.key(row) == GEMM.key(read)
        np.testing.assert_allclose(read["time_us"], row["time_us"], rtol=1e-4)
    assert sorted(path.name for path in folder.iterdir()) == ["single.csv", "whole.csv", "zipped.csv.gz"]


def test_a_mask_keeps_columns_together(tmp_path):
    found = points.read(gemm_file(tmp_path, HEADER + LINE + LINE.replace("bf16", "fp8")))
    kept = found.where(found["dtype"] == "fp8")
    assert len(kept) == 1
    assert {len(values) for values in kept.columns.values()} == {1}


def test_files_of_a_folder(tmp_path):
    for name in ("gemm.csv", "gemm.csv.gz", "moe.csv.gz", "notes.csv"):
        (tmp_path / name).write_bytes(b"")
    found = points.files(tmp_path)
    assert {table: path.name for table, path in found.items()} == {"gemm": "gemm.csv", "moe": "moe.csv.gz"}


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@sum", "'=x", "plain"])
def test_a_cell_is_no_formula_and_reads_back(tmp_path, name):
    row = {"gpu": name, "dtype": "bf16", "layout": "forward", "m": 8, "n": 8, "k": 8, "time_us": 1.0}
    points.write(tmp_path / "gemm.csv", GEMM, [{**row, "source": "lab"}])
    line = (tmp_path / "gemm.csv").read_text().splitlines()[1]
    assert line.lstrip('"')[0] not in "=+-@"
    assert points.read(tmp_path / "gemm.csv")["gpu"][0] == name


def test_a_cell_of_many_characters_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 2: a cell has more than 1,000 characters"):
        points.read(gemm_file(tmp_path, HEADER + LINE.replace("h100-sxm", "x" * 5000)))


@pytest.mark.parametrize("size", ["0", "-8", "1e15"])
def test_a_size_that_no_kernel_has_is_named(tmp_path, size):
    cells = dict(zip(HEADER.strip().split(","), LINE.strip().split(","), strict=True)) | {"m": size}
    path = gemm_file(tmp_path, HEADER + ",".join(cells.values()) + "\n")
    with pytest.raises(InputError, match="line 2, column m: a whole number from 1 to 2147483648 is needed"):
        points.read(path)
