"""``meshwright mcp``: the five questions as tools of the Model Context Protocol, over stdin and stdout."""

import asyncio
import json
from typing import Any

from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from core.errors import InputError
from meshwright import __version__
from meshwright.service.answers import read
from meshwright.service.names import names
from meshwright.service.questions import QUESTIONS
from meshwright.service.worker import Busy, TooLong, Workers

INSTRUCTIONS = (
    "Predicts training and serving of large language models on GPU clusters. Figures have bands; say them. "
    "Names of models and clusters are those of the tool `catalogue`."
)
CATALOGUE = "catalogue"


def server(workers: Workers) -> Server[Any]:
    """The server of the tools.

    Args:
        workers: run the questions.
    """

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(name=kind, description=model.about, input_schema=model.model_json_schema())
            for kind, model in QUESTIONS.items()
        ]
        empty = {"type": "object", "properties": {}}
        about = "Names of models, clusters, frameworks, engines and scenarios."
        return types.ListToolsResult(
            tools=[*tools, types.Tool(name=CATALOGUE, description=about, input_schema=empty)]
        )

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await called(workers, params.name, params.arguments or {})

    return Server(
        "meshwright",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def called(workers: Workers, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """The result of one tool; a wrong call has the API's own sentence."""
    if name == CATALOGUE and not arguments:
        return _told(json.dumps(names()))
    if name not in QUESTIONS:
        return _told(f"unknown tool {name!r}; allowed: {', '.join((*QUESTIONS, CATALOGUE))}", wrong=True)
    try:
        read(name, arguments)
        done = await workers.answer(name, arguments, page=False)
    except InputError as error:
        return _told(str(error), wrong=True)
    except Busy:
        return _told("too many questions wait; ask again later", wrong=True)
    except TooLong:
        return _told("the question takes longer than this server allows", wrong=True)
    if problem := done.get("problem"):
        return _told(problem)
    text = types.TextContent(type="text", text=f"{done['text']}\n\n{done['scenario']}".strip())
    return types.CallToolResult(content=[text], structured_content=done["answer"])


def _told(text: str, wrong: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=wrong)


async def serve() -> None:
    """Answer calls on stdin until it ends."""
    assistant = server(Workers())
    async with stdio_server() as (read_stream, write_stream):
        await assistant.run(read_stream, write_stream, assistant.create_initialization_options())


def main() -> None:
    """Run the server."""
    asyncio.run(serve())
