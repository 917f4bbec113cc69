"""Commands of inference servers in launch files: shell scripts, Kubernetes manifests, Dynamo deployments.

Nothing is executed. A manifest is searched for containers; their words are read as a command, or as a script
where they hand one to a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.errors import InputError
from core.loading import exists
from core.parsing import read_text
from meshwright.exporters.server_charts import charted
from meshwright.exporters.shell import expanded_commands, read_options
from meshwright.exporters.table import Options
from meshwright.exporters.tuning_sharding import NOT_YAML

MOST_DEPTH = 40
"""Nesting of a manifest."""
STARTS: tuple[tuple[str, str], ...] = (
    (r"(?:^|[\s/])vllm\s+serve\b", "vllm"),
    (r"-m\s+vllm\.entrypoints\.(?:openai\.)?api_server\b", "vllm"),
    (r"-m\s+dynamo\.vllm\b", "vllm"),
    (r"-m\s+sglang\.launch_server\b", "sglang"),
    (r"(?:^|[\s/])sglang\s+serve\b", "sglang"),
    (r"-m\s+dynamo\.sglang\b", "sglang"),
    (r"(?:^|[\s/])trtllm-serve\b(?!\s+disaggregated)", "trtllm"),
    (r"-m\s+dynamo\.trtllm\b", "trtllm"),
    (r"\b(?:docker|podman|nerdctl)\s+run\b.*?\bvllm/vllm-openai(?::[\w.-]+)?(?=\s)", "vllm"),
)
"""What starts a server, and its engine."""
IMAGES = (("vllm", "vllm"), ("sglang", "sglang"), ("tensorrt-llm", "trtllm"), ("trtllm", "trtllm"))
"""Words of container images whose entry point is an engine's server."""
FILES = ("--config", "--extra_llm_api_options", "--extra-engine-args")
"""Options of trtllm-serve and Dynamo that name a file of options."""
OTHER_FILES = "--config"
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
BACKEND = re.compile(r"\bVLLM_ATTENTION_BACKEND=[\"']?(\w+)")
VERSION = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")
INSTALLED = re.compile(r"\b(?:vllm|sglang)(?:\[\w+\])?==(\d+\.\d+(?:\.\d+)?)")
CONTINUED = re.compile(r"\\\s*\n")
ENDS = ("|", "2>&1", "&", ">", ">>", "&&", ";", "||", "exec")


@dataclass(frozen=True)
class LaunchedServer:
    """A command that starts a server."""

    engine: str
    options: Options
    model: str = ""
    """The word behind the command that has no option."""
    version: str = ""
    """Release that the container's image names."""
    replicas: int | None = None
    role: str = ""
    """prefill or decode, where the manifest says it."""
    preset: str = ""
    """Engine preset that an exported file names."""
    backend: str = ""
    """Attention backend that the environment names."""
    predicted: str = ""
    """Model of the catalogue that an exported file names."""
    notes: tuple[str, ...] = ()
    """What the manifest states beside the server and no deployment is given."""


class Beside(NamedTuple):
    """Files that servers may name: those of a folder, and of the config maps of a manifest."""

    folder: Path
    maps: Mapping[str, str]

    def options(self, name: str, where: str) -> Mapping[str, Any]:
        """The options in a file.

        Raises:
            InputError: not there, or no mapping.
        """
        path = self.folder / name
        if not exists(path) and Path(name).name in self.maps:
            return _mapping(self.maps[Path(name).name], f"{where}: {Path(name).name}")
        if not exists(path):
            raise InputError(f"{path.name}: the file of options is not beside the launch file", where)
        return _mapping(read_text(path), str(path))


def _mapping(text: str, where: str) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(text)
    except NOT_YAML as error:
        raise InputError(f"not readable as YAML ({str(error)[:80]})", where) from None
    if not isinstance(data, Mapping):
        raise InputError("a mapping of options is needed", where)
    return data


def _config_maps(documents: Sequence[Any]) -> dict[str, str]:
    """Texts of the files in the config maps of a manifest, by name."""
    maps = [part.get("data") for part in documents if part.get("kind", "") == "ConfigMap"]
    return {
        str(name): text
        for data in maps
        if isinstance(data, Mapping)
        for name, text in data.items()
        if isinstance(text, str)
    }


def servers_of(text: str, where: str, path: Path | None) -> list[LaunchedServer]:
    """The servers that a text starts; empty where it starts none.

    Args:
        text: of a script, a command line or a manifest.
        where: to name in errors.
        path: the file, whose folder holds files of options.

    Raises:
        InputError: a file of options that is not there.
    """
    documents = _documents(text) if path is None or path.suffix in (".yaml", ".yml") else []
    beside = Beside(path.parent if path else Path(), _config_maps(documents))
    listed = [server for document in documents for server in _manifest(document, where, beside, {})]
    if listed:
        return listed
    values = [part for document in documents for part in charted(document, where)]
    if values:
        return [_server("vllm", part.words, where, beside, **part.fields) for part in values]
    return list(_script(text, where, beside))


def _documents(text: str) -> list[Any]:
    try:
        return [part for part in yaml.load_all(text, Loader=yaml.CSafeLoader) if isinstance(part, Mapping)]
    except NOT_YAML:
        return []


def _script(text: str, where: str, beside: Beside) -> Iterator[LaunchedServer]:
    """Servers of a script or a command line."""
    joined = CONTINUED.sub(" ", text)
    if not any(re.search(start, joined) for start, _ in STARTS):
        return
    backend = BACKEND.search(text)
    for command in expanded_commands(text, where):
        for start, engine in STARTS:
            if start_of := re.search(start, command):
                words = _words(command[start_of.end() :], where)
                release = VERSION.search(start_of[0])
                more = {"version": release[1] if release else "", "backend": backend[1] if backend else ""}
                yield _server(engine, words, where, beside, **more, **_written_by_us(text))
                break


PREDICTED = re.compile(r"^# Predicted with (\S+), (\d{1,6}) replicas?(?:, of (\S+)\.$)?", re.MULTILINE)
"""Comment of an exported script."""


def _written_by_us(text: str) -> dict[str, Any]:
    """Preset, replicas and model that an exported script tells."""
    comment = PREDICTED.search(text)
    if comment is None:
        return {}
    return {"preset": comment[1], "replicas": int(comment[2]), "predicted": comment[3] or ""}


def _words(text: str, where: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"not readable as a command line ({error})", where) from None
    end = next((index for index, word in enumerate(words) if word in ENDS), len(words))
    return words[:end]


def _server(engine: str, words: list[str], where: str, beside: Beside, **more: Any) -> LaunchedServer:
    spelled = [SHORT.get(word, word) for word in words]
    options = {_plain(engine, name): value for name, value in read_options(spelled).items()}
    model = words[0] if words and not words[0].startswith("-") else ""
    if engine == "trtllm":
        for name in FILES:
            if isinstance(named := options.pop(name, None), str):
                named = Path(named).name if "$" in named else named
                options = {**_flat(beside.options(named, where)), **options}
    elif OTHER_FILES in options:
        raise InputError(
            "takes options from another file; give a command with all options", f"{where}: --config"
        )
    return LaunchedServer(engine, options, model, **more)


SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"}
SHORT |= {"-q": "--quantization", "-m": "--model"}


def _plain(engine: str, name: str) -> str:
    """An option as its table spells it: hyphens, and no dashes for TensorRT-LLM, whose options are keys."""
    if engine == "trtllm":
        return name.removeprefix("--").replace("-", "_") if name not in FILES else name
    return name.replace("_", "-") if name.startswith("--") else name


def _flat(tree: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Options:
    """Nested options under dotted names."""
    options: Options = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and depth < MOST_DEPTH:
            options |= _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            options[f"{prefix}{key}"] = value
    return options


def _manifest(
    node: Any, where: str, beside: Beside, around: Mapping[str, Any], depth: int = 0
) -> Iterator[LaunchedServer]:
    """Servers of the containers of a manifest."""
    if depth > MOST_DEPTH:
        return
    if isinstance(node, list):
        for part in node:
            yield from _manifest(part, where, beside, around, depth + 1)
    if not isinstance(node, Mapping):
        return
    around = {**around, **_told(node)}
    around[ENV] = {**around.get(ENV, {}), **_environment(node)}
    if isinstance(run := node.get("run"), str):
        yield from _sky_servers(run, node, around[ENV], where, beside)
        return
    if "leaderTemplate" in node:  # The workers of a LeaderWorkerSet are ranks of the leader's server.
        node = {key: part for key, part in node.items() if key != "workerTemplate"}
    if isinstance(node.get("image"), str) or "command" in node or "args" in node:
        server = _container(node, where, beside, around)
        if server is not None:
            yield server
            return
    for part in node.values():
        yield from _manifest(part, where, beside, around, depth + 1)


def _sky_servers(
    run: str, task: Mapping[str, Any], variables: Mapping[str, str], where: str, beside: Beside
) -> Iterator[LaunchedServer]:
    """Servers of a SkyPilot task, as its first node starts them."""
    resources, service = (
        part if isinstance(part := task.get(key), Mapping) else {} for key in ("resources", "service")
    )
    devices = re.search(r":\s*(\d{1,3})\b", str(resources.get("accelerators")))
    nodes = {"NODE_RANK": "0", "NUM_NODES": str(task.get("num_nodes", 1))}
    nodes["NUM_GPUS_PER_NODE"] = devices[1] if devices else "1"
    named = {f"SKYPILOT_{name}": value for name, value in nodes.items()}
    image = VERSION.search(str(resources.get("image_id")))
    release = image or INSTALLED.search(str(task.get("setup")))
    policy = service.get("replica_policy")
    policy = policy if isinstance(policy, Mapping) else {}
    count = service.get("replicas", policy.get("min_replicas"))
    upper = policy.get("max_replicas")
    stated: dict[str, Any] = {"replicas": count if type(count) is int and count > 0 else None}
    if upper not in (None, count):
        stated["notes"] = (f"service.replica_policy.max_replicas {upper} is left out: {count or 1} runs",)
    for server in _script(_replaced(run, {**variables, **named}), where, beside):
        version = server.version or (release[1] if release else "")
        yield replace(server, version=version, **stated)


ENV = "environment"
NAMED = re.compile(r"\b[A-Za-z_]\w*")


def _environment(node: Mapping[str, Any]) -> dict[str, str]:
    """Variables that a level of a manifest sets."""
    values: dict[str, str] = {}
    for part in (node.get(key) for key in ("env", "envs", "environment")):
        if isinstance(part, Mapping):
            pairs = list(part.items())
        elif isinstance(part, list):
            pairs = [(entry.get("name"), entry.get("value")) for entry in part if isinstance(entry, Mapping)]
        else:
            continue
        values |= {str(name): str(value) for name, value in pairs if isinstance(value, str | int | float)}
    if "workerTemplate" in node and type(node.get("size")) is int:
        # What a LeaderWorkerSet sets in its pods (sigs.k8s.io/lws, pkg/utils/pod).
        values |= {"LWS_GROUP_SIZE": str(node["size"]), "LWS_WORKER_INDEX": "0"}
    return values


def _replaced(text: str, variables: Mapping[str, str]) -> str:
    """Text with the variables of its container, in arithmetic too."""
    text = re.sub(
        r"\$\(\(([^()]*)\)\)",
        lambda sum_: f"$(({re.sub(NAMED, lambda name: variables.get(name[0], name[0]), sum_[1])}))",
        text,
    )
    text = re.sub(r"\$\{(\w+):?-([^{}]*)\}", lambda named: variables.get(named[1], named[2]), text)
    return re.sub(r"\$[({]?(\w+)[)}]?", lambda match: variables.get(match[1], match[0]), text)


def _told(node: Mapping[str, Any]) -> dict[str, Any]:
    """Replicas and role that a level of a manifest states."""
    fields: dict[str, Any] = {}
    if type(node.get("replicas")) is int and node["replicas"] > 0:
        fields["replicas"] = node["replicas"]
    for key in ("subComponentType", "role"):
        if node.get(key) in ("prefill", "decode"):
            fields["role"] = node[key]
    return fields


def _container(
    node: Mapping[str, Any], where: str, beside: Beside, around: Mapping[str, Any]
) -> LaunchedServer | None:
    around = dict(around)
    variables = around.pop(ENV, {})
    words = [
        _replaced(str(word), variables)
        for key in ("entrypoint", "command", "args")
        for word in _listed(node.get(key))
    ]
    # Tags of Dynamo's images are its own releases.
    version = VERSION.search(str(node.get("image", ""))) if "dynamo" not in str(node.get("image")) else None
    fields = {"version": version[1] if version else "", **around}
    if words and words[0] in SHELLS:
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        first = next(_script(script, where, beside), None)
        if first is None:
            return None
        return LaunchedServer(first.engine, first.options, first.model, **fields)
    line = shlex.join(words)
    for start, engine in STARTS:
        if start_of := re.search(start, line):
            return _server(engine, _words(line[start_of.end() :], where), where, beside, **fields)
    image = str(node.get("image", "")).lower()
    engine = next((engine for word, engine in IMAGES if word in image), None)
    if engine is None or not any(word.startswith("--") for word in words):
        return None
    return _server(engine, words, where, beside, **fields)


def _listed(value: object) -> Sequence[object]:
    if isinstance(value, str):
        return value.split()
    return value if isinstance(value, list) else []
