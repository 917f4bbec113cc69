"""The command line, run in this process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from meshwright.__main__ import UNEXPECTED, app

os.environ["COLUMNS"] = "190"  # tables of one line per plan, also in processes that tests start


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def run() -> Callable[..., Ran]:
    """Run a command; an exception that would be a traceback fails the test."""

    def run(*arguments: str) -> Ran:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code != UNEXPECTED, result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """Run a command that must end with one clear message, and nothing on stdout; returns the message."""

    def refused(*arguments: str, code: int = 2) -> str:
        ran = run(*arguments)
        assert ran.code == code, ran
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert "Traceback" not in ran.err
        return ran.err

    return refused


@pytest.fixture
def refused_after_tables(run) -> Callable[..., str]:
    """Run a command whose files cannot be written, after its tables; returns the message."""

    def refused(*arguments: str) -> str:
        ran = run(*arguments)
        assert ran.code == 2, ran
        assert ran.err.splitlines()[-1].startswith("error: ")
        return ran.err

    return refused


SMALL = """\
model: llama2-7b
cluster: dgx-a100-80gb
gpus: 16
workload: {seq_len: 2048, global_batch: 64, precision: bf16}
plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}
"""


@pytest.fixture
def scenario(tmp_path) -> Callable[..., Path]:
    """Write a small scenario, with lines replaced by what a test is about."""

    def scenario(*replaced: tuple[str, str], name: str = "small.yaml") -> Path:
        text = SMALL
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return scenario
