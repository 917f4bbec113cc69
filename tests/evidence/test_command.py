"""Commands of evidence: the signature of ``main`` is the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pytest

from core.errors import InputError
from evidence.command import command, parser_of


def files(
    first: Path,
    rest: Sequence[Path] = (),
    *,
    out: Annotated[Path, "-o"],
    kept_apart: Sequence[Path] = (),
    kind: Annotated[str | None, ("a", "b"), "which"] = None,
    every: int = 1,
    write: bool = False,
) -> None:
    raise InputError(f"{first} {out} {len(rest)} {len(kept_apart)} {kind} {every} {write}")


def test_options_are_parsed_as_the_signature_says():
    line = "x.csv y.csv -o z --kept-apart p q --kept-apart r --kind b --every 3 --write"
    words = vars(parser_of(files).parse_args(line.split()))
    assert words["kept_apart"] == [Path("p"), Path("q"), Path("r")] and words["rest"] == [Path("y.csv")]
    assert (words["first"], words["out"], words["kind"], words["every"]) == (Path("x.csv"), Path("z"), "b", 3)
    assert words["write"] is True
    assert vars(parser_of(files).parse_args(["x.csv", "--out", "z"])).keys() == {"first", "out"}


def test_a_path_left_out_has_its_default():
    def one(trace: Path | None = None, *, small: bool = False) -> None:
        raise InputError(f"{trace} {small}")

    assert vars(parser_of(one).parse_args(["--small"])) == {"trace": None, "small": True}
    assert vars(parser_of(one).parse_args(["a.csv"])) == {"trace": Path("a.csv")}


@pytest.mark.parametrize("line", ["x.csv", "-o z", "x -o z --kind c", "x -o z --every many", "x -o z --none"])
def test_a_line_that_does_not_fit_ends_with_the_usage(line):
    with pytest.raises(SystemExit):
        parser_of(files).parse_args(line.split())


def test_a_command_runs_where_its_module_does(monkeypatch, capsys):
    assert command(files) is files
    monkeypatch.setattr(files, "__module__", "__main__")
    monkeypatch.setattr("sys.argv", ["files", "x.csv", "-o", "z", "--every", "4"])
    with pytest.raises(SystemExit) as ended:
        command(files)
    assert ended.value.code == InputError("").exit_code
    assert "x.csv z 0 0 None 4 False" in capsys.readouterr().err
