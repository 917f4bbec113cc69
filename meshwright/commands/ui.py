"""``meshwright ui``: the questions in a browser, and over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer


def ui(
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; another than loopback is open to others.")
    ] = ("127.0.0.1"),
    seconds: Annotated[float, typer.Option(help="Longest time of a question.", min=1, max=3600)] = 60.0,
) -> None:
    """Answer questions in a browser, and as JSON under /api.

    A form asks train, serve, size and simulate; answers are the pages and tables of the command line.
    Requests read and write no files. Needs pip install '.\\[ui]'.

    [bold]Example:[/bold] meshwright ui
    """
    from core.errors import InputError
    from meshwright.commands.output import note

    try:
        import uvicorn

        from meshwright.service.web import LOOPBACK, application
    except ImportError:
        raise InputError("needs FastAPI and uvicorn: pip install '.[ui]'", "ui") from None
    from meshwright.service.worker import Workers

    loopback = host in ("127.0.0.1", "localhost", "::1")
    if not loopback:
        note(f"note: {host} is open to whoever reaches this machine; questions take processors and memory")
    app = application(Workers(seconds=seconds), LOOPBACK if loopback else (*LOOPBACK, host))
    address = f"[{host}]" if ":" in host else host
    note(f"http://{address}:{port} (Ctrl-C ends it)")
    uvicorn.run(app, host=host, port=port, log_level="warning", limit_concurrency=200, timeout_keep_alive=5)
