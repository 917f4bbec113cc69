"""The ``meshwright`` command, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hwmodels.errors import MeshwrightError
from meshwright import __version__
from meshwright.commands import COMMANDS

INTERRUPTED = 130


class Commands(TyperGroup):
    """The commands; whatever one of them raises on purpose is a message on stderr, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the context names."""
        try:
            return super().invoke(ctx)
        except MeshwrightError as error:
            _fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted", INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            # What has no name is stdout.
            _fail(f"{error.filename or 'stdout'}: {error.strerror or error}", MeshwrightError.exit_code)


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="meshwright",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def meshwright(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Predict, search and explain training plans for large models on GPU clusters you may not own yet."""


for _command in COMMANDS:
    app.command()(_command)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
