"""Routers before the replicas of an engine: one script that joins pools, or replicas of one pool."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.exporters.base import ExportQuestion, array, commented, flags, header, required
from meshwright.exporters.table import Options, table
from simulator.serving.setting import ServingSetting

FILE = "router.sh"
BOOTSTRAP_OFFSET = 998
"""From a server's port to its bootstrap port: 8998, SGLang's default, for port 8000 (server_args.py)."""


@dataclass(frozen=True)
class RouterProgram:
    """The router of one engine."""

    table: str
    command: str
    package: str
    """Package and version of PyPI."""
    prefill_port: str = ""
    """Word after the address of a prefill server."""


PROGRAMS = {
    "vllm": RouterProgram("vllm-router-0.1.yaml", "vllm-router", "vllm-router==0.1.17"),
    "sglang": RouterProgram(
        "sglang-router-0.3.yaml",
        "python3 -m sglang_router.launch_router",
        "sglang-router==0.3.2",
        f'"$((${{url##*:}} + {BOOTSTRAP_OFFSET}))"',
    ),
}


def disaggregated(setting: ServingSetting) -> bool:
    """Whether prompts and outputs run in different pools."""
    return any(pool.pool.role != "mixed" for pool in setting.pools)


def needs_router(setting: ServingSetting) -> bool:
    """Whether requests meet more than one server."""
    return sum(pool.pool.replicas for pool in setting.pools) > 1


def router_script(question: ExportQuestion, engine: str) -> tuple[str, list[str]]:
    """The script of a router for the servers in its environment, and its gaps; empty without a router.

    Args:
        question: about serving.
        engine: vllm, sglang or trtllm.
    """
    setting = question.deployed()
    if not needs_router(setting):
        return "", []
    if engine == "trtllm":
        return _tensorrt(question), []
    program = PROGRAMS[engine]
    options, gaps = router_options(setting, engine)
    text = _head(question, table(program.table).version, gaps, disaggregated(setting))
    text += array("ROUTER_ARGS", flags(options))
    if disaggregated(setting):
        after = f" {program.prefill_port}" if program.prefill_port else ""
        text += f'for url in $PREFILL_URLS; do ROUTER_ARGS+=(--prefill "$url"{after}); done\n'
        text += 'for url in $DECODE_URLS; do ROUTER_ARGS+=(--decode "$url"); done\n'
    else:
        text += "ROUTER_ARGS+=(--worker-urls $WORKER_URLS)\n"
    return text + f'{program.command} --port "$PORT" "${{ROUTER_ARGS[@]}}" "$@"\n', gaps


def router_options(setting: ServingSetting, engine: str) -> tuple[Options, list[str]]:
    """Options of an engine's router without the addresses of its servers, and their gaps."""
    facts = {"deployment.router": setting.deployment.router}
    return table(PROGRAMS[engine].table).write({**facts, "derived.disaggregated": disaggregated(setting)})


def _head(question: ExportQuestion, version: str, gaps: list[str], pools: bool) -> str:
    text = "#!/usr/bin/env bash\n" + commented(header(question, version, (*gaps,), ()))
    text += (
        "# Start it beside the servers of the other scripts, with their addresses (http://HOST:PORT ...).\n"
    )
    text += "set -euo pipefail\n\n"
    for name in ("PREFILL_URLS", "DECODE_URLS") if pools else ("WORKER_URLS",):
        text += required(name, "addresses of the servers, separated by blanks")
    return text + "PORT=${PORT:-8000}\n"


def _tensorrt(question: ExportQuestion) -> str:
    """TensorRT-LLM's own frontend joins pools; a pool alone has none."""
    if not disaggregated(question.deployed()):
        return ""
    text = _head(question, "TensorRT-LLM 1.2 (trtllm-serve disaggregated)", [], pools=True)
    return text + (
        "servers() {\n"
        "    printf '  num_instances: %s\\n  urls:\\n' \"$#\"\n"
        '    for url in "$@"; do printf \'    - "%s"\\n\' "${url#http://}"; done\n'
        "}\n"
        "CONFIG=$(mktemp)\n"
        "{\n"
        "    printf 'hostname: 0.0.0.0\\nport: %s\\nbackend: pytorch\\n' \"$PORT\"\n"
        "    printf 'context_servers:\\n'; servers $PREFILL_URLS\n"
        "    printf 'generation_servers:\\n'; servers $DECODE_URLS\n"
        '} > "$CONFIG"\n'
        'trtllm-serve disaggregated -c "$CONFIG" "$@"\n'
    )
