"""Servers in files of values: charts of vLLM's production stack, and models of Ray Serve and RayLLM.

Their keys are vLLM's options in other spellings, so that they become its command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from core.errors import InputError, shown

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
FIRST_ENGINE = "vllm-0.6"
"""Preset of vLLM's engine 0, which a chart of a later release may ask for."""
AUTOSCALED = "deployment_config.autoscaling_config"


class ChartedServer(NamedTuple):
    """The words of a server's command, and what the file says beside it."""

    words: list[str]
    fields: dict[str, Any]


def charted(document: Mapping[str, Any], where: str) -> Iterator[ChartedServer]:
    """The servers of a file of values; none in a file of another kind.

    Raises:
        InputError: a part of a wrong type, or an engine that is not read.
    """
    for spec in _mappings(_at(document, "servingEngineSpec.modelSpec")):
        yield _production_stack(spec, where)
    for application in _mappings(document.get("applications")):
        for config in _mappings(_at(application, "args.llm_configs")):
            yield _ray_serve(config, where)
    for config in _mappings(document.get("llm_configs")):
        yield _ray_serve(config, where)
    if "engine_config" in document and "scaling_config" in document:
        yield _ray_llm(document, where)
    elif "model_loading_config" in document:
        yield _ray_serve(document, where)


def _production_stack(spec: Mapping[str, Any], where: str) -> ChartedServer:
    """vllm-project/production-stack, helm/values.schema.json."""
    place = f"{where}: modelSpec"
    options = dict(_mapping(spec, "vllmConfig", place))
    first_engine, _ = (str(options.pop(key, "")).lower() in ("1", "true") for key in ("v0", "v1"))
    more = options.pop("extraArgs", [])
    if not isinstance(more, list):
        raise InputError(
            f"a list of options is needed, found {shown(more)}", f"{place}: vllmConfig.extraArgs"
        )
    copies = _mapping(spec, "lmcacheConfig", place)
    fields: dict[str, Any] = {
        "replicas": _count(spec.get("replicaCount")),
        "version": _release(spec.get("tag")),
        "preset": FIRST_ENGINE if first_engine else "",
    }
    if copies.get("enabled"):
        fields["role"] = ROLES.get(str(copies.get("kvRole")), "")
        fields["notes"] = ("lmcacheConfig: KV that LMCache keeps beside the device is left out",)
    words = [str(spec.get("modelURL", "")), *_words(options), *map(str, more)]
    return ChartedServer(words, fields)


def _ray_serve(config: Mapping[str, Any], where: str) -> ChartedServer:
    """Ray Serve's LLMConfig (ray.serve.llm)."""
    loading = _mapping(config, "model_loading_config", where)
    model = loading.get("model_source", loading.get("model_id", ""))
    if not isinstance(model, str):
        raise InputError(
            f"a name is needed, found {shown(model)}", f"{where}: model_loading_config.model_source"
        )
    words = [model, *_words(_mapping(config, "engine_kwargs", where))]
    return ChartedServer(words, _autoscaled(config))


def _ray_llm(document: Mapping[str, Any], where: str) -> ChartedServer:
    """RayLLM's model files of 2023-24: a worker is a tensor rank."""
    engine = _mapping(document, "engine_config", where)
    if "vllm" not in str(engine.get("type", "")).lower():
        kind = shown(engine.get("type"))
        raise InputError(f"{kind} is not read; VLLMEngine is", f"{where}: engine_config.type")
    options = dict(_mapping(engine, "engine_kwargs", where))
    scaling = _mapping(document, "scaling_config", where)
    workers, devices = (_count(scaling.get(key)) or 1 for key in ("num_workers", "num_gpus_per_worker"))
    options.setdefault("tensor_parallel_size", workers * devices)
    if _count(engine.get("max_total_tokens")):
        options.setdefault("max_model_len", engine["max_total_tokens"])
    model = engine.get("hf_model_id", engine.get("model_id", ""))
    return ChartedServer([str(model), *_words(options)], _autoscaled(document))


def _autoscaled(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replicas at the least, and a note where they may become more."""
    scaling = _at(config, AUTOSCALED)
    scaling = scaling if isinstance(scaling, Mapping) else {}
    fewest, upper = _count(scaling.get("min_replicas")), scaling.get("max_replicas")
    fields: dict[str, Any] = {"replicas": fewest}
    if upper not in (None, fewest):
        fields["notes"] = (f"{AUTOSCALED}.max_replicas {shown(upper)} is left out: {fewest or 1} runs",)
    return fields


def _words(options: Mapping[str, Any]) -> list[str]:
    """Keys in camel or snake case as options of the command line."""
    words: list[str] = []
    for key, value in options.items():
        option = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).lower().replace("_", "-")
        if value is True:
            words.append(f"--{option}")
        elif value is False:
            words.append(f"--no-{option}")
        elif value is not None:
            words.append(f"--{option}={value}")
    return words


def _release(tag: object) -> str:
    release = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", str(tag))
    return release[1] if release else ""


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _at(node: Any, path: str) -> Any:
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []


def _mapping(node: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = node.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"a mapping is needed, found {shown(value)}", f"{where}: {key}")
    return value or {}
