"""The command line is frozen: a new, lost or renamed option is a line changed on purpose in options.txt."""

from pathlib import Path

import pytest
from typer.main import get_command

from meshwright.__main__ import app

FROZEN = Path(__file__).with_name("options.txt")


def options() -> list[str]:
    """Command and spellings of every parameter, in the order of names."""
    written = []
    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            spellings = [*parameter.opts, *parameter.secondary_opts]
            is_option = parameter.param_type_name == "option"
            written.append(" ".join([name, *(spellings if is_option else [str(parameter.name).upper()])]))
    return sorted(written)


def test_the_options_of_every_command_are_those_that_are_written_down():
    frozen, present = FROZEN.read_text(encoding="utf-8").splitlines(), options()
    new, lost = sorted(set(present) - set(frozen)), sorted(set(frozen) - set(present))
    assert not new, f"new options: add them to {FROZEN.name} on purpose, and to the docs: {new}"
    assert not lost, f"lost options: an old command line fails; say so in the changelog: {lost}"
    assert frozen == sorted(frozen)


@pytest.mark.parametrize("line", ["plan --model", "learn RUNS", "plan train --framework", "simulate --json"])
def test_commands_questions_options_and_arguments_are_among_them(line):
    assert line in [" ".join(option.split()[: len(line.split())]) for option in options()]
