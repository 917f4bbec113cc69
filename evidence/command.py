"""Commands of evidence and of benchmarks: the signature of ``main`` is the command line."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from itertools import chain
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from core.errors import MeshwrightError


def command(main: Callable[..., int | None]) -> Callable[..., int | None]:
    """Call ``main`` with the words of the command line where its module is run (``python -m``).

    Parameters are positional arguments, and keyword-only ones are options (``kept_apart`` is
    ``--kept-apart``, ``as_`` is ``--as``). A bool is a flag, a sequence takes several words, and its option
    may be repeated. ``Annotated`` adds a sentence of help, a short name (``-o``), or the values to choose
    from. A MeshwrightError is printed, and ends the command with its exit status. ``main`` is the last
    function of its module: all others are there when it runs.
    """
    if main.__module__ == "__main__":
        words = vars(parser_of(main).parse_args())
        parameters = signature(main).parameters.values()
        several = [words.pop(each.name, ()) for each in parameters if each.kind is VAR_POSITIONAL]
        try:
            sys.exit(main(*chain(*several), **words))
        except MeshwrightError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)
    return main


def parser_of(main: Callable[..., int | None]) -> ArgumentParser:
    """The parser of a command's arguments; those left out keep the defaults of ``main``."""
    about = sys.modules[main.__module__].__doc__
    parser = ArgumentParser(
        description=about, formatter_class=RawDescriptionHelpFormatter, argument_default=SUPPRESS
    )
    hints = get_type_hints(main, include_extras=True)
    for parameter in signature(main).parameters.values():
        _add_argument(parser, parameter, hints[parameter.name])
    return parser


def _add_argument(parser: ArgumentParser, parameter: Parameter, hint: Any) -> None:
    extras = getattr(hint, "__metadata__", ())
    hint = hint.__origin__ if extras else hint
    if get_origin(hint) is UnionType:
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
    short = [text for text in extras if isinstance(text, str) and text.startswith("-")]
    settings: dict[str, Any] = {
        "help" if isinstance(extra, str) else "choices": extra for extra in extras if extra not in short
    }
    optional, repeated = parameter.default is not Parameter.empty, parameter.kind is VAR_POSITIONAL
    if get_origin(hint) is Sequence:
        hint, repeated = get_args(hint)[0], True
    names = [parameter.name]
    if parameter.kind is KEYWORD_ONLY:
        names = [*short, f"--{parameter.name.rstrip('_').replace('_', '-')}"]
        settings |= {"required": not optional, "dest": parameter.name}
    elif optional or parameter.kind is VAR_POSITIONAL:
        settings["nargs"] = "*" if repeated else "?"
        if not repeated:
            # A suppressed default of a positional is a text, which its type would read.
            settings["default"] = parameter.default
    elif repeated:
        settings["nargs"] = "+"
    if hint is bool:
        settings["action"] = "store_true"
    else:
        settings["type"] = hint
        if repeated and parameter.kind is KEYWORD_ONLY:
            settings |= {"action": "extend", "nargs": "*"}
    parser.add_argument(*names, **settings)


VAR_POSITIONAL, KEYWORD_ONLY = Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY
