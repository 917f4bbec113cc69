"""The commands of `benchmarks` and `evidence` by folder, and figures: ``python -m benchmarks [WORD]``."""

import ast
from collections.abc import Iterator
from pathlib import Path

import benchmarks
from evidence.command import command


def commands() -> Iterator[tuple[str, str, str]]:
    """Folder, name and first line of the docstring of each module that can be run."""
    for folder in map(Path, benchmarks.__path__):
        for path in sorted(folder.glob("[!_]*.py")):
            source = path.read_text(encoding="utf-8")
            if "\n@command" in source or 'if __name__ == "__main__"' in source:
                yield folder.name, path.stem, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


@command
def main(*words: str) -> None:
    """Print the commands whose name or line has every word, below the name of their folder."""
    last = ""
    for folder, name, line in commands():
        if all(word.lower() in f"{folder} {name} {line}".lower() for word in words):
            print(*([folder] if folder != last else []), f"  {name:22} {line}", sep="\n")
            last = folder
