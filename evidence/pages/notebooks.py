"""Runs the notebooks of docs/notebooks and stores their outputs: ``python -m benchmarks.notebooks``.

Needs ``pip install nbclient ipykernel``; the test of the notebooks runs their code without either.
"""

from __future__ import annotations

from pathlib import Path

from evidence.command import command

FOLDER = Path("docs/notebooks")


@command
def main() -> None:
    """Run each notebook from the repository's root and write it back."""
    import nbformat
    from nbclient import NotebookClient

    for path in sorted(FOLDER.glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        NotebookClient(book, timeout=600, kernel_name="python3").execute()
        for cell in book.cells:
            # When a cell ran is no part of what it shows.
            cell.metadata.pop("execution", None)
        book.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(book, path)
        print(f"{path}: {sum(cell.cell_type == 'code' for cell in book.cells)} cells")
