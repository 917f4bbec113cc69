"""``meshwright mcp``: the questions as tools for assistants."""

from __future__ import annotations


def mcp() -> None:
    """Answer an assistant's calls over the Model Context Protocol, on stdin and stdout.

    Tools: train, serve, size, simulate, catalogue. Needs pip install '.\\[mcp]'.

    [bold]Example:[/bold] meshwright mcp
    """
    from core.errors import InputError

    try:
        from meshwright.service.assistant import main
    except ImportError:
        raise InputError("needs the SDK of the protocol: pip install '.[mcp]'", "mcp") from None
    main()
