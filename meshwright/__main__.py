"""The ``meshwright`` command, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

# Before typer: its imports are many.
from meshwright import process as process

# isort: split
import typer

from core.errors import InputError, MeshwrightError, Notice, UnknownNameError, shown_path
from meshwright import __version__
from meshwright.commands import COMMANDS, INTERRUPTED, PLAN_QUESTIONS, command
from meshwright.commands.parameters import CommandGroup, LazyCommand

UNEXPECTED = 70
"""EX_SOFTWARE of sysexits.h: an error of Meshwright itself."""


class Commands(CommandGroup):
    """The commands; exceptions become messages on stderr, never tracebacks."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; ``plan train`` and the other questions are commands of two words."""
        if args[:1] == ["plan"] and args[1:2] and args[1] in PLAN_QUESTIONS:
            args = [f"plan {args[1]}", *args[2:]]
        elif args and args[0] in PLAN_QUESTIONS and args[0] not in self.commands:
            raise InputError(f"No such command {args[0]!r}. Did you mean 'plan {args[0]}'?")
        elif args and not args[0].startswith("-") and args[0] not in self.commands:
            from meshwright.commands.usage import other_words

            if same := other_words("verbs").get(args[0]):
                raise InputError(f"unknown command {args[0]!r}; did you mean {same!r}?")
            raise UnknownNameError("command", args[0], COMMANDS)
        elif args[:1] == ["plan"] and args[1:2]:
            _check_question(args[1])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the context names."""
        try:
            return super().invoke(ctx)
        except MeshwrightError as error:
            _fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted", INTERRUPTED)
        except MemoryError:
            _fail("this machine has not enough memory for the question", MeshwrightError.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has seen enough: `| head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit from None
            # A path without a name is stdout.
            _fail(
                f"{shown_path(error.filename or 'stdout')}: {error.strerror or error}",
                MeshwrightError.exit_code,
            )
        except Exception as error:
            if hasattr(error, "format_message"):  # typer's usage errors, or click's
                from meshwright.commands.usage import usage_sentence

                _fail(usage_sentence(error, ctx), MeshwrightError.exit_code)
            if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code"):
                raise  # the end of a command
            from meshwright.crash_report import report_fault

            _fail(report_fault(error), UNEXPECTED)


def _check_question(word: str) -> None:
    """Refuse a word after ``plan`` that is no scenario and resembles a question.

    Raises:
        InputError: such a word.
    """
    import difflib

    nearest = difflib.get_close_matches(word, PLAN_QUESTIONS, n=1, cutoff=0.6)
    if nearest and not word.startswith("-") and not os.path.exists(word):
        raise InputError(f"No such question 'plan {word}'. Did you mean 'plan {nearest[0]}'?")


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


def meshwright(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Predict, search and explain training and serving plans of large models on GPU clusters you may not own.

    Questions: [bold]meshwright plan train | serve | mix | day | size[/bold], each with its own --help.
    """


QUESTIONS = tuple(f"plan {name}" for name in PLAN_QUESTIONS)


def command_line(names: Iterable[str] = (*COMMANDS, *QUESTIONS)) -> typer.Typer:
    """The command line with some of its commands."""
    return _command_line({name: command(name) for name in names})


def _command_line(functions: Mapping[str, Callable[..., None]]) -> typer.Typer:
    commands = typer.Typer(
        name="meshwright",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    commands.callback()(meshwright)
    for name, function in functions.items():
        commands.command(name, cls=LazyCommand, hidden=" " in name)(function)
    return commands


def overview() -> typer.Typer:
    """The command line with the commands' descriptions alone: ``--help`` prints no option of theirs."""

    def described(name: str) -> Callable[[], None]:
        def nothing() -> None:
            pass

        nothing.__doc__ = command(name).__doc__
        return nothing

    return _command_line({name: described(name) for name in COMMANDS})


def __getattr__(name: str) -> typer.Typer:
    """``app``, the command line with all commands; built on use, as it imports all their modules."""
    if name != "app":
        raise AttributeError(name)
    return command_line()


def main() -> None:
    """Run the command line."""
    from core.processes import clean_up_on_signals
    from meshwright.commands.output import prepare_streams

    if sys.stdout is None:
        print("error: stdout is closed; > /dev/null discards the results", file=sys.stderr)  # noqa: T201
        sys.exit(MeshwrightError.exit_code)
    prepare_streams()
    process.command = shlex.join(["meshwright", *sys.argv[1:]])
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    # Sentences of ours alone: warnings of Python and NumPy say nothing to whoever asks.
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", Notice)
    first, two = " ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])
    name = two if two in QUESTIONS else first
    try:
        with clean_up_on_signals():
            # The modules and options of the other commands need not be read.
            if name in ("-h", "--help"):
                overview()()
            else:
                command_line([name] if name in (*COMMANDS, *QUESTIONS) else COMMANDS)()
    except KeyboardInterrupt:  # outside of a command: while it is read, or while its end is written
        print("error: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(INTERRUPTED)
    finally:
        # Skip Python's final collection over all modules.
        gc.freeze()


if __name__ == "__main__":
    main()
