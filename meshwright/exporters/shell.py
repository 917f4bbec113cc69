"""Read launch scripts without running them: variables, arrays, arithmetic, and the command that trains.

Conditions over the script's own variables are evaluated; command substitutions and other conditions are not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.errors import InputError
from meshwright.exporters.base import Launch
from meshwright.exporters.shell_conditions import Branches, Case, guarded, holds, split_lines
from meshwright.exporters.shell_files import slurm_variables, without_files
from meshwright.exporters.shell_variables import MOST_STATEMENT, NAME, Variables, expand, unquoted
from meshwright.exporters.table import Options

LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "deepspeed",
    "srun",
    "mpirun",
    "python",
    "python3",
)
ARGUMENTS = ("$@", "$*", "${@}", "$1", "${@:1}")
"""The script's arguments."""
MOST_CHARACTERS = 1_000_000
"""Of a script."""
OPENING, CLOSING = ("if", "case", "for", "while", "until"), ("fi", "esac", "done")
PER_NODE = ("--nproc-per-node", "--num-gpus", "--ntasks-per-node", "--gpus-per-node")
NODES = ("--nnodes", "--num-nodes", "--nodes")


def read_script(text: str, where: str) -> Launch:
    """Read a launch script, or a command line.

    Args:
        text: of the script.
        where: to name in errors.

    Returns:
        Options behind the training script's name, and the devices that the launcher starts.

    Raises:
        InputError: no command starts a training script.
    """
    script = _statements(text, where)
    variables = script.variables
    expanded = [expand(command, variables) for command in script.commands]
    launching = [words for words in expanded if _launches(words)]
    if not launching:
        launching = [words for words in expanded if any(word.startswith("--") for word in words.split())]
    if not launching:
        raise InputError(
            "has no command that starts training (torchrun, deepspeed or python SCRIPT.py with --options)",
            where,
        )
    words = _split(max(launching, key=len), where)
    before, started, after = _parts(_nested(words))
    options = read_options(after)
    notes = [f"{script.skipped} lines under conditions were not evaluated"] if script.skipped else []
    if unset := sorted(_unset(options)):
        notes.append(f"variables without a value in the file: {', '.join(unset[:8])}")
    devices = _devices(read_options(before), variables)
    return Launch(options, devices, tuple(notes), started, script.files)


def expanded_commands(text: str, where: str) -> list[str]:
    """The commands of a script or a command line in order, their variables replaced.

    Raises:
        InputError: the script, a statement or its expansion is too long.
    """
    script = _statements(text, where)
    return [expand(command, script.variables) for command in script.commands]


def read_options(words: list[str]) -> Options:
    """Options of a command line: ``--name value ...``, ``--name=value``, flags, and ``key.path=value``."""
    options: Options = {}
    values: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word in ARGUMENTS:
            continue
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            options[name] = value if equals else True
            values.pop(name, None)
        elif re.match(r"^\+{0,2}[A-Za-z_][\w.]*=", word) and (
            not name or name in values or options[name] is not True
        ):
            key, _, value = word.lstrip("+").partition("=")
            options[key], name = value, ""
        elif name:
            values.setdefault(name, []).append(word)
    return {
        name: " ".join(([] if value is True else [value]) + values[name]) if name in values else value
        for name, value in options.items()
    }


class Script(NamedTuple):
    """A script without its conditions."""

    variables: Variables
    commands: list[str]
    skipped: int
    """Lines under conditions that were not evaluated."""
    files: dict[str, str]
    """Texts of the files that it writes, by name."""


def _statements(text: str, where: str) -> Script:
    """Variables and commands of a script in order, and the files that it writes.

    Raises:
        InputError: the script, a statement or its expansion is too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"is longer than {MOST_CHARACTERS:,} characters, no launch script is", where)
    variables = Variables(where)
    variables.update(slurm_variables(text))
    text, documents = without_files(text)
    plain = re.sub(r"(?m)(^|\s)#.*$", r"\1", text)
    joined = re.sub(r"\\[ \t]*\n", " ", plain)
    commands, skipped = [], 0
    branches = Branches()
    for line in _running(_lines(joined, where), branches, variables):
        line, runs = guarded(line, variables)
        if runs is False or False in branches.running:
            continue
        if runs is None or None in branches.running:
            skipped += 1
        elif assigned := _assignment(line):
            _assign(variables, *assigned)
        else:
            commands.append(line)
    files = {
        expand(document.name, variables): document.text
        if document.literal
        else expand(document.text, variables)
        for document in documents
    }
    return Script(variables, commands, skipped, files)


def _running(statements: Iterable[str], branches: Branches, variables: Variables) -> Iterator[str]:
    """Statements other than those that open and close conditions, which move the branches."""
    cases: list[Case] = []
    for line in (part for statement in statements for part in split_lines(statement)):
        first = line.split(None, 1)[0].rstrip(";")
        if first in CLOSING:
            branches.close()
            cases = cases[:-1] if first == "esac" else cases
            continue
        if first == "case" and line.endswith(" in"):
            cases.append(Case(unquoted(expand(line[4:-2].strip(), variables)), len(branches.running)))
            branches.open(False)
            continue
        if cases and cases[-1].depth == len(branches.running) - 1:
            line, branches.running[-1] = cases[-1].arm(line, branches.running[-1])
            if not line:
                continue
        if first in OPENING and not line.rstrip().rstrip(";").endswith(CLOSING):
            branches.open(holds(line, variables) if first == "if" else None)
        elif first in ("else", "elif") and branches.running:
            branches.other(True if first == "else" else holds(line, variables))
        elif first not in ("then", "do"):
            yield line


def _assign(variables: Variables, name: str, more: bool, value: str) -> None:
    """Set a variable to a value, its own variables replaced."""
    value = value[1:-1] if value.startswith("(") else unquoted(value)
    value = unquoted(expand(value, variables)) if '"' not in value[1:-1] else expand(value, variables)
    variables[name] = variables.spend(f"{variables.get(name, '')} {value}" if more else value)


def _assignment(line: str) -> tuple[str, bool, str] | None:
    """Name, whether the value is appended, and value of an assignment; None for commands."""
    begun = re.match(rf"(?:export\s+|declare\s+\S+\s+)?({NAME})(\+?)=", line)
    if begun is None:
        return None
    value = line[begun.end() :].rstrip()
    value = value.removesuffix(";").rstrip() if not value.endswith("\\;") else value
    if value.startswith("("):
        complete = value.endswith(")")
    else:
        computed = re.fullmatch(r"\$\(.*\)|`[^`]*`", value)
        complete = (
            bool(computed) or not re.search(r"\s", value) or any(_quoted(value, mark) for mark in "\"'")
        )
    return (begun[1], bool(begun[2]), value) if complete else None


def _quoted(value: str, mark: str) -> bool:
    """Whether all blanks of a value lie between its first and last quotation mark."""
    first, last = value.find(mark), value.rfind(mark)
    return 0 <= first < last and not re.search(r"\s", value[:first] + value[last + 1 :])


def _lines(text: str, where: str) -> list[str]:
    """Statements: lines, with arrays and quoted text over several lines joined.

    Raises:
        InputError: a statement is too long, perhaps never closed.
    """
    statements: list[str] = []
    parts: list[str] = []
    length = depth = 0
    mark, array = "", False
    lines = text.split("\n")
    last_single = max((number for number, line in enumerate(lines, start=1) if "'" in line), default=0)
    for number, line in enumerate(lines, start=1):
        part = line.strip()
        if not part and not parts:
            continue
        if not parts:
            array = re.match(rf"(?:export\s+)?{NAME}\+?=\(", part) is not None
            length, depth, mark = 0, 0, ""
        parts.append(part)
        length += len(part) + 1
        depth += part.count("(") - part.count(")")
        mark = _open_mark(part, mark)
        # An apostrophe that nothing closes is no quotation.
        mark = "" if mark == "'" and number >= last_single else mark
        if length > MOST_STATEMENT:
            problem = f"line {number}: a statement of more than {MOST_STATEMENT:,} characters"
            raise InputError(f"{problem}; is an array or a quotation never closed?", where)
        if not (depth > 0 if array else mark):
            statements.append(" ".join(parts))
            parts = []
    return [*statements, " ".join(parts)] if parts else statements


def _open_mark(part: str, mark: str) -> str:
    """The quotation mark that is open behind a line, given the one open before it; empty for none."""
    for place, letter in enumerate(part):
        if letter not in "\"'" or (mark != "'" and part[place - 1 : place] == "\\"):
            continue
        if not mark:
            mark = letter
        elif letter == mark:
            mark = ""
    return mark


def _launches(words: str) -> bool:
    first = words.split(None, 1)[0].rsplit("/", 1)[-1] if words.split() else ""
    is_launcher = first in LAUNCHERS or any(f" {name} " in f" {words} " for name in LAUNCHERS)
    return is_launcher and (".py" in words or " -m " in words)


def _split(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=False)
    except ValueError as error:
        raise InputError(f"not readable as a command line ({error})", where) from None


def _parts(words: list[str]) -> tuple[list[str], str, list[str]]:
    """Words before the training script, its name, and those behind it; without a script all are options."""
    scripts = [index for index, word in enumerate(words) if word.endswith(".py")]
    modules = [
        i + 1
        for i, word in enumerate(words[:-1])
        if word == "-m" and not words[i + 1].startswith("torch.distributed")
    ]
    places = sorted(scripts + modules)
    if not places:
        start = next((index for index, word in enumerate(words) if word.startswith("--")), 0)
        return words, "", words[start:]
    end = next(
        (
            i
            for i, word in enumerate(words)
            if i > places[0] and word in ("|", "2>&1", "&", ">", ">>", "&&", ";")
        ),
        len(words),
    )
    before = [word for word in words[: places[0]] if word != "-m"]
    return before, words[places[0]], words[places[0] + 1 : end]


def _nested(words: list[str]) -> list[str]:
    """Words with quoted commands (``bash -c "python script.py --options"``) split."""
    return [part for word in words for part in (word.split() if re.search(r"\.py\s+--", word) else [word])]


def _devices(launcher: Options, variables: Variables) -> int | None:
    """Devices that the launcher starts; None where it does not say."""
    plain = {name.replace("_", "-"): str(value) for name, value in launcher.items()}
    each = next((plain[name] for name in PER_NODE if plain.get(name, "").isdigit()), None)
    nodes = next((plain[name] for name in NODES if plain.get(name, "").isdigit()), None)
    if each is not None and len(each) < 7:
        if nodes is None and any(name in plain for name in NODES):
            return None
        return int(each) * int(nodes or 1)
    world = expand(variables.get("WORLD_SIZE", ""), variables)
    if world.isdigit() and len(world) < 9:
        return int(world)
    nodes, each = (variables.get(f"SLURM_{name}", "") for name in ("NNODES", "GPUS_PER_NODE"))
    return int(nodes[:9]) * int(each[:9]) if nodes and each else None


def _unset(options: Options) -> set[str]:
    return {
        name
        for value in options.values()
        if isinstance(value, str)
        for name in re.findall(rf"\$\{{?({NAME}|\d)", value)
    }
