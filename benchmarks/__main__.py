"""The commands of `benchmarks` and `evidence`, and what each prints: ``python -m benchmarks [WORD]``."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import benchmarks


def commands() -> Iterator[tuple[str, str]]:
    """Name and first line of the docstring of each module that can be run."""
    paths = (path for folder in benchmarks.__path__ for path in Path(folder).glob("[!_]*.py"))
    for path in sorted(paths, key=lambda path: path.stem):
        source = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__"' in source:
            yield path.stem, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def main(words: list[str]) -> None:
    """Print the commands whose name or line has every word."""
    for name, line in commands():
        if all(word.lower() in f"{name} {line}".lower() for word in words):
            print(f"{name:22} {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
