"""``meshwright ui``: a form for the five questions, their pages, and JSON under ``/api`` with OpenAPI."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InputError
from meshwright import __version__
from meshwright.pages.page import own_file
from meshwright.service.answers import read
from meshwright.service.names import names
from meshwright.service.questions import QUESTIONS, ServiceQuestion
from meshwright.service.worker import Busy, TooLong, Workers

MOST_BYTES = 1_000_000
"""Of a request's body."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1", "testserver")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "frame-src 'self'; img-src data: blob:"
)
"""The page loads nothing from elsewhere."""


class SmallBodies:
    """Refuses bodies above ``MOST_BYTES`` before they are read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > MOST_BYTES:
            await _refuse(413, f"a request has at most {MOST_BYTES:,} bytes")(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MOST_BYTES:
                return {"type": "http.disconnect"}
            return message

        await self.app(scope, counted, send)


def _refuse(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status)


def application(workers: Workers | None = None, hosts: tuple[str, ...] = LOOPBACK) -> FastAPI:
    """The service.

    Args:
        workers: run the questions.
        hosts: names by which it may be called; others are refused, so that no page elsewhere can ask by a
            name that it made point here.
    """
    pool = workers or Workers()
    app = FastAPI(
        title="Meshwright",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(SmallBodies)

    @app.exception_handler(InputError)
    async def wrong(request: Request, error: InputError) -> JSONResponse:
        return _refuse(422, str(error))

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> JSONResponse:
        return _refuse(429, "too many questions wait; ask again later")

    @app.exception_handler(TooLong)
    async def slow(request: Request, error: TooLong) -> JSONResponse:
        return _refuse(
            503, "the question takes longer than this service allows; the command line has no such limit"
        )

    @app.exception_handler(RuntimeError)
    async def fault(request: Request, error: RuntimeError) -> JSONResponse:
        return _refuse(500, f"an error of Meshwright itself: {error}")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def form() -> HTMLResponse:
        return HTMLResponse(own_form(), headers={"content-security-policy": POLICY})

    @app.get("/api/catalogue")
    async def catalogue() -> JSONResponse:
        """Names of models, clusters, frameworks, engines and scenarios."""
        return JSONResponse(names())

    for kind, model in QUESTIONS.items():
        app.post(f"/api/{kind}", summary=model.about, openapi_extra=_schema(model))(_asks(pool, kind))
    return app


def _schema(model: type[ServiceQuestion]) -> dict[str, Any]:
    """The body of a question, and its flag, as OpenAPI has them."""
    page = {"name": "page", "in": "query", "schema": {"type": "boolean"}, "description": "draw the page too"}
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"parameters": [page], "requestBody": {"required": True, "content": content}}


def _asks(pool: Workers, kind: str) -> Callable[[Request], Awaitable[JSONResponse]]:
    """The function that answers the requests of a question."""

    async def ask(request: Request) -> JSONResponse:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            return _refuse(422, "the body must be JSON: a mapping of keys to values")
        # Names and files are refused before a process starts.
        read(kind, body)
        page = request.query_params.get("page") in ("true", "1")
        return JSONResponse(await pool.answer(kind, body, page))

    return ask


def own_form() -> str:
    """The page of the form, with the schemas of the questions inside."""
    schemas = {
        kind: {"about": model.__doc__, "schema": model.model_json_schema()}
        for kind, model in QUESTIONS.items()
    }
    data = json.dumps({"questions": schemas, "names": names(), "version": __version__}).replace(
        "<", "\\u003c"
    )
    text = (Path(__file__).parent / "form.html").read_text(encoding="utf-8")
    return text.replace("/*STYLE*/", own_file("page.css")).replace("/*DATA*/", data)
