"""Mutated launch files and configurations end in an answer or in a refusal, never in another error."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.errors import MeshwrightError
from core.loading import read_mapping
from meshwright.exporters.imports import read_launch
from simulator.models.huggingface import read_config
from simulator.ops.counts import model_parameters
from tests.meshwright.exporters.test_server_read import DYNAMO, MANIFEST
from tests.meshwright.exporters.test_tuning_read import ACCELERATE, AXOLOTL, FACTORY

DECODERS = read_mapping(Path(__file__).parents[2] / "simulator" / "models" / "decoders.yaml", bounded=False)
LINES = (
    "vllm serve Qwen/Qwen3-32B -tp 4 --data-parallel-size=2 --max-model-len 32k --max-num-seqs 64 "
    '--speculative-config \'{"method":"eagle3","num_speculative_tokens":3}\'',
    "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --dp-size 8 --ep 16 "
    "--enable-dp-attention --mem-fraction-static 0.8 --max-total-tokens 100000 --page-size 64",
    "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --kv_cache_free_gpu_memory_fraction 0.8",
)
ODD_WORDS = (
    "-1",
    "0",
    "1e999",
    "nan",
    "true",
    "[1,2]",
    "{a: b}",
    "9" * 20,
    "''",
    "é",
    "$X",
    "--x",
    "\x00",
    "3.5",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    "x",
    [],
    {},
    1e308,
    True,
    2**70,
    [1],
    {"a": 1},
    3.5,
    [None],
    10**6,
)


def mutated(text: str, random: Random) -> str:
    """A text with some parts left out, repeated or replaced."""
    for _ in range(random.choice([1, 1, 2, 3])):
        place = random.randrange(len(text) + 1)
        match random.randrange(4):
            case 0:
                text = text[:place] + text[place + random.choice([1, 3, 10, 60]) :]
            case 1:
                text = text[:place] + random.choice(ODD_WORDS) + text[place:]
            case 2:
                words = [match.span() for match in re.finditer(r"[\w.\-/]+", text)] or [(0, 0)]
                first, last = random.choice(words)
                text = text[:first] + random.choice(ODD_WORDS) + text[last:]
            case _:
                text = text[:place] + text[place : place + random.choice([5, 40])] + text[place:]
    return text


def ends_well(attempt: Callable[[], object], told: str) -> None:
    try:
        attempt()
    except MeshwrightError:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} for {told}") from error


@pytest.mark.parametrize("seed", range(8))
def test_mutated_launch_files(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for number in range(12):
        base = random.choice((MANIFEST, DYNAMO, AXOLOTL, FACTORY, ACCELERATE, *LINES))
        path = tmp_path / (f"{number}.yaml" if "\n" in base else f"{number}.sh")
        path.write_text(text := mutated(base, random), errors="replace")
        ends_well(lambda: read_launch(str(path), stated={"cluster": "dgx-h200", "gpus": 8}), text)  # noqa: B023


@pytest.mark.parametrize("name", DECODERS)
def test_mutated_configurations(name: str, tmp_path: Path) -> None:
    random, path = Random(name), tmp_path / "config.json"
    for _ in range(15):
        config = dict(DECODERS[name]["config"])
        for _ in range(random.choice([1, 2, 3])):
            key, value = random.choice(sorted(config)), random.choice(ODD_VALUES)
            if isinstance(listed := config[key], list) and listed and random.random() < 0.5:
                place = random.randrange(len(listed))
                config[key] = [*listed[:place], value, *listed[place + 1 :]]
            else:
                config[key] = value
        path.write_text(json.dumps(config), encoding="utf-8")
        ends_well(lambda: model_parameters(read_config(path)), json.dumps(config))


ODD_FILES = {
    "docker.sh": f"docker run --gpus all vllm/vllm-openai:v0.{'1' * 5000} --model Qwen/Qwen3-32B -tp 4",
    "ppo.yaml": "algorithm: !!bool y\nmodel: Qwen/Qwen3-8B\n",
    "grpo.yaml": "algorithm: !!timestamp x\nmodel: Qwen/Qwen3-8B\n",
    "pretrain.sh": f"torchrun pretrain_gpt.py --num-layers {'9' * 5000} --hidden-size 4096",
    "train.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = nan\n[parallelism]\n',
    "values.yaml": "image: {tag: !!int x}\nargs: [vllm, serve, Qwen/Qwen3-32B]\n",
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_versions_and_tags_that_nothing_can_be(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ODD_FILES[name], encoding="utf-8")
    stated = {"cluster": "dgx-h200", "gpus": 8}
    ends_well(lambda: read_launch(str(tmp_path / name), stated=stated), ODD_FILES[name])
