"""The launchers' own parsers, run by `benchmarks.launchers` in an environment that can import them.

    python launcher_parsers.py TARGET FOLDER SOURCES

FOLDER has a folder a plan; SOURCES has the unpacked packages. Prints ACCEPTED or REFUSED a plan.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

Check = Callable[[Path], object]


def words_of(script: Path, command: str, environment: dict[str, str]) -> list[str]:
    """The words that a script gives to a command, as bash expands them."""
    text = script.read_text().replace(f"\n{command} ", "\nprintf '%s\\n' ")
    run = subprocess.run(
        ["bash", "-c", text], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def megatron_lm(sources: Path) -> Check:
    """Megatron-LM's argparse, without abbreviations."""
    import typing_extensions

    typing.override = typing_extensions.override  # type: ignore[attr-defined]
    sys.path.insert(0, str(sources / "megatron_core"))
    import megatron.training.arguments as arguments
    import torch
    from megatron.training.arguments import add_megatron_arguments

    arguments.get_device_arch_version = lambda: 9  # of H100; asked of the GPU otherwise
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: argparse.Namespace(major=9, minor=0)
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    add_megatron_arguments(parser)

    def check(folder: Path) -> argparse.Namespace:
        words = words_of(folder / "train.sh", "torchrun", {})
        options = dict(pairwise(words))
        parsed = parser.parse_args(
            [*words[words.index("pretrain_gpt.py") + 1 :], "--mock-data", "--lr", "1e-4"]
        )
        parsed.rank, parsed.world_size = 0, int(options["--nnodes"]) * int(options["--nproc-per-node"])
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        if "CUDA_DEVICE_MAX_CONNECTIONS=1" in (folder / "train.sh").read_text():
            os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        arguments.validate_args(parsed, {"tokenizer_type": "NullTokenizer"})
        return parsed

    return check


def megatron_bridge(sources: Path) -> Check:
    """Keys against the fields of the release's dataclasses, and recipes against its functions."""
    fields: dict[str, set[str]] = {}
    recipes: set[str] = set()
    for root in ("megatron_bridge", "megatron_core"):
        for path in (sources / root).rglob("*.py"):
            text = path.read_text(encoding="utf-8", errors="ignore")
            recipes |= set(re.findall(r"(\w+_pretrain_config)\b", text)) if "recipes" in path.parts else set()
            if "@dataclass" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    named = {
                        n.target.id
                        for n in node.body
                        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                    }
                    fields.setdefault(node.name, set()).update(named)
    sections = {
        "model": ("TransformerConfig", "ModelParallelConfig", "GPTModelProvider", "MLATransformerConfig"),
        "ddp": ("DistributedDataParallelConfig",),
        "optimizer": ("OptimizerConfig",),
        "train": ("TrainingConfig",),
        "comm_overlap": ("CommOverlapConfig",),
        "dist": ("DistributedInitConfig",),
        "checkpoint": ("CheckpointConfig",),
        "dataset": ("GPTDatasetConfig", "DataloaderConfig"),
    }

    def check(folder: Path) -> None:
        words = words_of(folder / "train.sh", "torchrun", {})
        assert words[words.index("--recipe") + 1] in recipes
        for word in words[words.index("--recipe") + 2 :]:
            key = word.partition("=")[0]
            section, _, name = key.partition(".")
            keys = (
                fields["ConfigContainer"]
                if not name
                else set().union(*(fields[c] for c in sections[section]))
            )
            assert (name or section) in keys, f"no field {key}"

    return check


def deepspeed(sources: Path) -> Check:
    """DeepSpeedConfig, in the data-parallel world that the launch script starts."""
    sys.path.insert(0, str(sources / "deepspeed"))
    import deepspeed.comm as dist
    from deepspeed.runtime.config import DeepSpeedConfig

    def check(folder: Path) -> None:
        config = json.loads((folder / "ds_config.json").read_text())
        words = words_of(folder / "launch.sh", "deepspeed", {"SCRIPT": "train.py"})
        options = dict(pairwise(words))
        world = int(options["--num_nodes"]) * int(options["--num_gpus"])
        ranks = config.get("tensor_parallel", {}).get("autotp_size", 1) * config.get(
            "sequence_parallel_size", 1
        )
        dist.get_rank = lambda *_: 0
        dist.get_world_size = lambda *_: world

        class Groups:
            get_data_parallel_world_size = staticmethod(lambda: world // ranks)
            get_model_parallel_world_size = staticmethod(lambda: ranks)

        parsed = DeepSpeedConfig(config, mpu=Groups())
        assert parsed.train_batch_size == config["train_batch_size"]
        assert parsed.zero_config.stage == config["zero_optimization"]["stage"]

    return check


def torchtitan(sources: Path) -> Check:
    """torchtitan's ConfigManager, which imports the exported file, and its check of the mesh."""
    sys.path.insert(0, str(sources / "torchtitan"))
    from torchtitan.components.quantization import float8, mx
    from torchtitan.config import ConfigManager

    for module in (float8, mx):  # converters refuse to be built where there is no GPU
        module.has_cuda_capability = lambda *_: True

    def check(folder: Path) -> None:
        sys.path.insert(0, str(folder))
        sys.modules.pop("meshwright_config", None)
        try:
            arguments = ["--module", "meshwright_config", "--config", "meshwright_plan"]
            config = ConfigManager().parse_args(arguments)
        finally:
            sys.path.remove(str(folder))
        assert config.parallelism.tensor_parallel_degree >= 1

    return check


def vllm(sources: Path) -> Check:
    """vLLM's EngineArgs, on its CPU platform where there is no GPU."""
    sys.path.insert(0, str(sources / "vllm"))
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    EngineArgs.add_cli_args(parser)

    def check(folder: Path) -> None:
        for script in folder.glob("serve*.sh"):
            words = words_of(script, "vllm serve", {"MODEL": "model"})
            parsed = parser.parse_args(words[words.index("--port") + 2 :])
            assert parsed.tensor_parallel_size >= 1

    return check


def sglang(sources: Path) -> Check:
    """SGLang's ServerArgs."""
    sys.path.insert(0, str(sources / "sglang"))
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)

    def check(folder: Path) -> None:
        for script in folder.glob("serve*.sh"):
            words = words_of(script, "python3 -m sglang.launch_server", {"MODEL": "model"})
            parsed = parser.parse_args(words)
            assert parsed.tp_size >= 1

    return check


def dynamo(sources: Path) -> Check:
    """Keys of the custom resource against the release's own; flags against vLLM's and Dynamo's."""
    import yaml

    root = sources / "ai_dynamo" / "dynamo"
    options: set[str] = set()
    for path in root.rglob("*.yaml"):
        text = path.read_text()
        if "DynamoGraphDeployment" in text:
            for part in yaml.safe_load_all(text):
                options |= _keys(part)
    flags = set(re.findall(r'"(--[a-z0-9-]+)"', "".join(p.read_text() for p in root.rglob("*args*.py"))))
    flags |= set(re.findall(r'"(--[a-z0-9-]+)"', (sources / "vllm/vllm/engine/arg_utils.py").read_text()))

    def check(folder: Path) -> None:
        graph = yaml.safe_load((folder / "deployment.yaml").read_text())
        names = set(graph["spec"]["services"])
        missing = _keys(graph) - options - names - {"subComponentType", "multinode", "nodeCount"}
        assert not missing, f"no key {sorted(missing)}"
        for service in graph["spec"]["services"].values():
            command = service["extraPodSpec"]["mainContainer"]["args"][0]
            used = {word for word in command.split() if word.startswith("--")}
            bare = {f"--{word.removeprefix('--no-')}" if word.startswith("--no-") else word for word in used}
            assert bare <= flags | {"--model", "--http-port"}, f"no flag {sorted(bare - flags)}"

    return check


def k8s(sources: Path) -> Check:
    """Keys of Jobs, Deployments, Services and pods against the models of Kubernetes' Python client."""
    import yaml
    from kubernetes import client

    templates = {"leaderTemplate": "V1PodTemplateSpec", "workerTemplate": "V1PodTemplateSpec"}

    def fields(data: object, kind: str, where: str) -> None:
        if kind.startswith("list["):
            assert isinstance(data, list), where
            for part in data:
                fields(part, kind[5:-1], where)
        elif hasattr(client, kind):
            model = getattr(client, kind)
            names = {theirs: ours for ours, theirs in model.attribute_map.items()}
            assert isinstance(data, dict), where
            for key, value in data.items():
                assert key in names, f"{where}: no key {key} in {kind}"
                fields(value, model.openapi_types[names[key]], f"{where}.{key}")

    def check(folder: Path) -> None:
        for data in yaml.safe_load_all((folder / "meshwright.yaml").read_text()):
            if data["kind"] == "LeaderWorkerSet":  # not of Kubernetes itself: its pods are
                for name, kind in templates.items():
                    fields(data["spec"]["leaderWorkerTemplate"][name], kind, name)
            else:
                fields(data, f"V1{data['kind']}", data["kind"])

    return check


def _keys(data: object) -> set[str]:
    if isinstance(data, dict):
        return set(data) | {key for value in data.values() for key in _keys(value)}
    return {key for value in data for key in _keys(value)} if isinstance(data, list) else set()


def main() -> None:
    """Check every plan's folder."""
    target, folder, sources = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with contextlib.redirect_stdout(io.StringIO()):
        check = globals()[target.replace("-", "_")](sources)
    for plan in sorted(folder.iterdir()):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                check(plan)
        except (Exception, SystemExit) as error:
            print(f"REFUSED {plan.name}: {type(error).__name__} {str(error).splitlines()[:1]}")
        else:
            print(f"ACCEPTED {plan.name}")


if __name__ == "__main__":
    main()
