"""Read launch scripts without running them: variables, arrays, arithmetic, and the command that trains.

Conditions and command substitutions are not evaluated; a script that needs them gives an error.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from core.errors import InputError, shown
from meshwright.exporters.base import Launch
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
MOST_EXPANSIONS = 40
MOST_CHARACTERS = 1_000_000
"""Of a script."""
MOST_STATEMENT = 100_000
"""Characters of one statement, before and after its variables are replaced."""
MOST_WORK = 10_000_000
"""Characters of all replaced variables together: nested variables grow exponentially."""
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
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
    variables, commands, skipped = _statements(text, where)
    expanded = [(_expand(command, variables), command) for command in commands]
    launching = [words for words, _ in expanded if _launches(words)]
    if not launching:
        launching = [words for words, _ in expanded if any(word.startswith("--") for word in words.split())]
    if not launching:
        raise InputError(
            "has no command that starts training (torchrun, deepspeed or python SCRIPT.py with --options)",
            where,
        )
    words = _split(max(launching, key=len), where)
    before, script, after = _parts(_nested(words))
    options = read_options(after)
    notes = [f"{skipped} lines under conditions were not evaluated"] if skipped else []
    if unset := sorted(_unset(options)):
        notes.append(f"variables without a value in the file: {', '.join(unset[:8])}")
    return Launch(options, _devices(read_options(before), variables, bool(script)), tuple(notes), script)


def expanded_commands(text: str, where: str) -> list[str]:
    """The commands of a script or a command line in order, their variables replaced.

    Raises:
        InputError: the script, a statement or its expansion is too long.
    """
    variables, commands, _ = _statements(text, where)
    return [_expand(command, variables) for command in commands]


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


class Variables(dict[str, str]):
    """Variables of a script, and the characters that their replacement may still write."""

    def __init__(self, where: str = "") -> None:
        super().__init__()
        self.where, self.left = where, MOST_WORK

    def spend(self, text: str) -> str:
        """Count replaced text.

        Raises:
            InputError: the script's variables expand to more than ``MOST_WORK`` characters.
        """
        self.left -= len(text) + 1
        if self.left < 0:
            raise InputError(
                f"its variables expand to more than {MOST_WORK:,} characters; give the command itself",
                self.where,
            )
        return text


def _statements(text: str, where: str) -> tuple[Variables, list[str], int]:
    """Variables and commands of a script in order, and the lines under conditions that were left out.

    Raises:
        InputError: the script, a statement or its expansion is too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"is longer than {MOST_CHARACTERS:,} characters, no launch script is", where)
    plain = re.sub(r"(?m)(^|\s)#.*$", r"\1", text)
    joined = re.sub(r"\\[ \t]*\n", " ", plain)
    variables = Variables(where)
    commands, skipped = [], 0
    conditions: list[bool | None] = []
    cases: list[_Case] = []
    for line in _lines(joined, where):
        first = line.split(None, 1)[0].rstrip(";")
        if first in CLOSING:
            conditions, cases = conditions[:-1], cases[:-1] if first == "esac" else cases
            continue
        if first == "case" and line.endswith(" in"):
            cases.append(_Case(_unquoted(_expand(line[4:-2].strip(), variables)), len(conditions)))
            conditions.append(False)
            continue
        if cases and cases[-1].depth == len(conditions) - 1:
            line, conditions[-1] = cases[-1].arm(line, conditions[-1])
            if not line:
                continue
        if first in OPENING and not line.rstrip().rstrip(";").endswith(CLOSING):
            conditions.append(_holds(line, variables) if first == "if" else None)
            continue
        if first in ("else", "elif") and conditions:
            before = conditions[-1]
            conditions[-1] = None if first == "elif" or before is None else not before
            continue
        if first in ("then", "do"):
            continue
        if not all(conditions):
            skipped += any(holds is None for holds in conditions)
            continue
        if assigned := _assignment(line):
            name, more, value = assigned
            value = value[1:-1] if value.startswith("(") else _unquoted(value)
            value = (
                _unquoted(_expand(value, variables)) if '"' not in value[1:-1] else _expand(value, variables)
            )
            variables[name] = variables.spend(f"{variables.get(name, '')} {value}" if more else value)
        else:
            commands.append(line)
    return variables, commands, skipped


def _assignment(line: str) -> tuple[str, bool, str] | None:
    """Name, whether the value is appended, and value of an assignment; None for commands."""
    begun = re.match(rf"(?:export\s+|declare\s+\S+\s+)?({NAME})(\+?)=", line)
    if begun is None:
        return None
    value = line[begun.end() :].rstrip()
    value = value.removesuffix(";").rstrip() if not value.endswith("\\;") else value
    if value.startswith("("):
        whole = value.endswith(")")
    else:
        whole = not re.search(r"\s", value) or any(_quoted(value, mark) for mark in "\"'")
    return (begun[1], bool(begun[2]), value) if whole else None


def _quoted(value: str, mark: str) -> bool:
    """Whether all blanks of a value lie between its first and last quotation mark."""
    first, last = value.find(mark), value.rfind(mark)
    return 0 <= first < last and not re.search(r"\s", value[:first] + value[last + 1 :])


class _Case:
    """A ``case`` statement: the first arm whose pattern matches the word holds."""

    def __init__(self, word: str, depth: int) -> None:
        self.word, self.depth = word, depth
        self.known, self.chosen, self.inside = "$" not in word, False, False

    def arm(self, line: str, holds: bool | None) -> tuple[str, bool | None]:
        """The rest of a line after the arm's pattern or end, and whether it holds."""
        if not self.inside and (pattern := re.match(r"\(?([^()]*)\)\s*", line)):
            self.inside, line = True, line[pattern.end() :]
            patterns = [_unquoted(part.strip()) for part in pattern[1].split("|")]
            holds = any(fnmatchcase(self.word, part) for part in patterns) and not self.chosen
            self.chosen |= holds
            holds = holds if self.known else None
        if line.rstrip().endswith(";;"):
            self.inside, line = False, line.rstrip().removesuffix(";;").rstrip()
        return line, holds


def _holds(line: str, variables: Variables) -> bool | None:
    """Whether an ``if`` holds; None for conditions other than comparisons of variables with text."""
    test = line.strip().removeprefix("if").strip().removesuffix("then").rstrip().removesuffix(";").rstrip()
    parts = re.split(r"(\|\||&&)", test)
    values = [_compared(part.strip(), variables) for part in parts[::2]]
    if not values or None in values:
        return None
    return any(values) if "||" in parts else all(values)


def _compared(test: str, variables: Variables) -> bool | None:
    """One test: equal, unequal, empty or not."""
    marks = "[[ ", " ]]"
    if not (test.startswith(marks[0]) and test.endswith(marks[1])):
        marks = "[ ", " ]"
    if not (test.startswith(marks[0]) and test.endswith(marks[1])):
        return None
    inner = test.removeprefix(marks[0]).removesuffix(marks[1]).strip()
    expanded = re.sub(rf"\$\{{?({NAME}|\d)\}}?", "", _expand(inner, variables))
    try:
        words = shlex.split(expanded)
    except ValueError:
        return None
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        return (words[0] == words[2]) == (words[1] != "!=")
    if words and words[0] in ("-z", "-n") and len(words) < 3:
        return (len(words) < 2 or not words[1]) == (words[0] == "-z")
    return None


def _lines(text: str, where: str) -> list[str]:
    """Statements: lines, with arrays and quoted text over several lines joined.

    Raises:
        InputError: a statement is too long, perhaps never closed.
    """
    statements: list[str] = []
    parts: list[str] = []
    length = depth = quotes = 0
    array = False
    for number, line in enumerate(text.split("\n"), start=1):
        part = line.strip()
        if not part and not parts:
            continue
        if not parts:
            array = re.match(rf"(?:export\s+)?{NAME}\+?=\(", part) is not None
            length = depth = quotes = 0
        parts.append(part)
        length += len(part) + 1
        depth += part.count("(") - part.count(")")
        quotes += part.count('"')
        if length > MOST_STATEMENT:
            problem = f"line {number}: a statement of more than {MOST_STATEMENT:,} characters"
            raise InputError(f"{problem}; is an array or a quotation never closed?", where)
        if not (depth > 0 if array else quotes % 2 == 1):
            statements.append(" ".join(parts))
            parts = []
    return [*statements, " ".join(parts)] if parts else statements


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _expand(text: str, variables: Variables) -> str:
    """Text with variables and arithmetic replaced; variables without a value stay.

    Raises:
        InputError: the text grows beyond ``MOST_STATEMENT`` characters, or all texts beyond ``MOST_WORK``.
    """

    def default(match: re.Match[str]) -> str:
        return variables.get(match[1]) or _unquoted(match[2])

    def plain(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    def words(match: re.Match[str]) -> str:  # words of an unquoted array are split again
        return variables.get(match[1], "").replace('"', "")

    def quoted_words(match: re.Match[str]) -> str:
        return variables.get(match[1], "")

    def calculated(match: re.Match[str]) -> str:
        return _arithmetic(match[1], variables) or match[0]

    replaced = (
        (rf"\"\$\{{({NAME})\[[@*]\]\}}\"", quoted_words),
        (rf"\$\{{({NAME})\[[@*]\]\}}", words),
        (rf"\$\{{({NAME}|\d):?-([^{{}}]*)\}}", default),
        (rf"\$\{{({NAME})\}}", plain),
        (rf"\$({NAME})", plain),
        (r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)", calculated),
    )
    for _ in range(MOST_EXPANSIONS):
        before = text
        for pattern, replace in replaced:
            text = re.sub(pattern, lambda match, replace=replace: variables.spend(replace(match)), text)
        if len(text) > MOST_STATEMENT:
            raise InputError(
                f"a statement expands to more than {MOST_STATEMENT:,} characters: {shown(text[:40])}",
                variables.where,
            )
        if text == before:
            break
    return text


OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
LARGEST = 10**15


def _arithmetic(text: str, variables: Mapping[str, str]) -> str | None:
    """The value of a shell's whole-number arithmetic; None where it has none."""
    named = re.sub(NAME, lambda m: variables.get(m[0], m[0])[:500], text[:500])
    try:
        return str(_calculated(ast.parse(named.strip()[:500], mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _calculated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < LARGEST:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_calculated(node.left), _calculated(node.right))
        if abs(value) < LARGEST:
            return value
    raise ValueError


def _launches(words: str) -> bool:
    first = words.split(None, 1)[0].rsplit("/", 1)[-1] if words.split() else ""
    known = first in LAUNCHERS or any(f" {name} " in f" {words} " for name in LAUNCHERS)
    return known and (".py" in words or " -m " in words)


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


def _devices(launcher: Options, variables: Variables, scripted: bool) -> int | None:
    """Devices that the launcher starts; None where it does not say."""
    plain = {name.replace("_", "-"): str(value) for name, value in launcher.items()}
    each = next((plain[name] for name in PER_NODE if plain.get(name, "").isdigit()), None)
    nodes = next((plain[name] for name in NODES if plain.get(name, "").isdigit()), None)
    if each is not None and len(each) < 7:
        if nodes is None and any(name in plain for name in NODES):
            return None
        return int(each) * int(nodes or 1)
    world = _expand(variables.get("WORLD_SIZE", ""), variables)
    return int(world) if world.isdigit() and len(world) < 9 else None


def _unset(options: Options) -> set[str]:
    return {
        name
        for value in options.values()
        if isinstance(value, str)
        for name in re.findall(rf"\$\{{?({NAME}|\d)", value)
    }
