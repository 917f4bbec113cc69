"""verl's and NeMo RL's configurations as scenarios of post-training."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from core.errors import InputError
from core.loading import exists
from core.parsing import read_text
from meshwright.exporters.base import Imported
from meshwright.exporters.tuning_sharding import NOT_YAML, yaml_of
from simulator.models import models
from simulator.rl.scenario import make_rl

MODEL_SIZES = re.compile(r"-(instruct|base|chat|it|hf|sft|fp8)$")
DEPTH = 8
"""Most recipes below a recipe."""
ASSUMED_SHARE = 0.5
"""Mean answer over the longest one, where a file does not say it."""
SIGMA = 0.5
"""Spread of answers around it."""
Flat = dict[str, Any]


def read_post_training(
    text: str, where: str, path: Path | None, stated: Mapping[str, Any], target: str = ""
) -> Imported | None:
    """A configuration of verl or NeMo RL as a scenario; None where the text is neither.

    Args:
        text: YAML, or a command with Hydra's ``key=value`` words.
        where: its name in errors.
        path: its file, whose recipes below are read.
        stated: ``model``, ``cluster`` and ``gpus`` that replace the file's.
        target: verl or nemo-rl, where the user names it.

    Raises:
        InputError: a value of a wrong type, or a plan that cannot run, with its place.
    """
    flat = _flat_yaml(text, path) or _overrides(text)
    for name, (mark, reader) in READERS.items():
        if target in ("", name) and any(key.startswith(mark) for key in flat):
            values = _Values(flat, where)
            return _imported(reader(values), name, values, stated)
    if target:
        raise InputError(f"has no keys of {target}", where)
    return None


def _imported(scenario: dict[str, Any], target: str, values: _Values, stated: Mapping[str, Any]) -> Imported:
    scenario |= {key: stated[key] for key in ("model", "cluster", "gpus") if stated.get(key)}
    if "cluster" not in scenario:
        raise InputError("state the cluster", "--cluster")
    make_rl(scenario, values.where, Path())
    aside = {key: value for key, value in values.flat.items() if key not in values.read}
    longest = scenario["workload"]["output"]["most"]
    mean = ASSUMED_SHARE * longest
    note = f"lengths of answers are not in the file: a mean of {mean:,.0f} tokens is assumed"
    return Imported(scenario, target, aside, (), (note,))


def _flat_yaml(text: str, path: Path | None, depth: int = 0) -> Flat:
    """A YAML file with the recipes that its ``defaults`` names, as dotted keys; empty if it is none."""
    data = yaml_of(text)
    if not isinstance(data, Mapping):
        return {}
    below = data.get("defaults")
    flat: Flat = {}
    if isinstance(below, str) and path is not None and depth < DEPTH:
        file = path.parent / below
        if exists(file) and file.is_file():
            flat |= _flat_yaml(read_text(file), file, depth + 1)
    return flat | _flatten({key: value for key, value in data.items() if key not in ("defaults", "hydra")})


def _flatten(data: Mapping[Any, Any], above: str = "") -> Flat:
    flat: Flat = {}
    for key, value in data.items():
        name = f"{above}{key}"
        flat |= _flatten(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return flat


def _overrides(text: str) -> Flat:
    """Hydra's words of a command, with the script's own variables put in."""
    from meshwright.exporters.shell import expanded_commands

    flat: Flat = {}
    for command in expanded_commands(_computed(text), "command"):
        for word in command.split():
            key, equals, value = word.lstrip("+").partition("=")
            if equals and re.fullmatch(r"[a-z_]+(\.\w+)+", key):
                flat[key] = _scalar(value.strip("\"'"))
    return flat


ASSIGNED = re.compile(r"^\s*(?:export\s+)?(\w+)=(\$\(\(.*\)\)|\$\{\w+:-\d+\}|\d+)\s*(?:#.*)?$", re.MULTILINE)
COMPUTED = re.compile(r"\$\(\(([^$`]{1,200}?)\)\)(?!\))")


def _computed(text: str) -> str:
    """A script whose arithmetic on whole numbers is done: ``$((1024 * 8))`` is 8192."""
    numbers: dict[str, int] = {}

    def value(match: re.Match[str]) -> str:
        names = re.sub(r"[A-Za-z_]\w*", lambda name: str(numbers.get(name[0], name[0])), match[1])
        try:
            return str(_number(ast.parse(names.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return match[0]

    lines = []
    for line in text.splitlines():
        named = re.sub(r"\$\{(\w+)\}", lambda name: str(numbers.get(name[1], name[0])), line)
        done = COMPUTED.sub(value, named if "$((" in line else line)
        if assigned := ASSIGNED.match(done):
            digits = re.search(r"\d+", assigned[2])
            if digits:
                numbers[assigned[1]] = int(digits[0][:15])
        lines.append(done)
    return "\n".join(lines)


def _number(tree: ast.expr) -> int:
    """A sum, difference, product or quotient of whole numbers.

    Raises:
        ValueError: anything else.
    """
    operations = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.floordiv,
    }
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.BinOp) and type(tree.op) in operations:
        return operations[type(tree.op)](_number(tree.left), _number(tree.right))
    raise ValueError


def _scalar(value: str) -> Any:
    """A word as YAML reads it; the word itself where it is no YAML."""
    try:
        return yaml.safe_load(value)
    except NOT_YAML:
        return value


class _Values:
    """Typed values of dotted keys; those read are remembered."""

    def __init__(self, flat: Flat, where: str) -> None:
        self.flat, self.where = flat, where
        self.read: set[str] = set()

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number.

        Raises:
            InputError: another value, or none and no default.
        """
        self.read.add(key)
        value = self.flat.get(key)
        if value is None and default is not None:
            return default
        try:
            if value is None or isinstance(value, bool) or int(value) != float(value):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise InputError(f"a whole number is needed, found {value!r}", f"{self.where}: {key}") from None

    def share(self, key: str, default: float) -> float:
        """A number.

        Raises:
            InputError: another value.
        """
        self.read.add(key)
        value = self.flat.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"a number is needed, found {value!r}", f"{self.where}: {key}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        self.read.add(key)
        value = self.flat.get(key)
        return default if value is None else str(value).lower() == "true"

    def word(self, key: str, default: str = "") -> str:
        """A text."""
        self.read.add(key)
        value = self.flat.get(key)
        return default if value is None else str(value)

    def model(self, key: str) -> str:
        """A catalogue name of a model by its checkpoint."""
        name = self.word(key).rstrip("/").rpartition("/")[2].lower()
        while name not in models.names() and MODEL_SIZES.search(name):
            name = MODEL_SIZES.sub("", name)
        return name


def _output(longest: int) -> dict[str, Any]:
    from simulator.lengths.lognormal import median_of_mean

    median = median_of_mean(ASSUMED_SHARE * longest, SIGMA, longest)
    return {"kind": "lognormal", "median": round(median), "sigma": SIGMA, "most": longest}


def _megatron_plan(values: _Values, prefix: str, full: bool) -> dict[str, Any]:
    """The layout of Megatron's keys."""
    names = {
        "tensor": "tensor_model_parallel_size",
        "pipeline": "pipeline_model_parallel_size",
        "virtual_pipeline": "virtual_pipeline_model_parallel_size",
        "context": "context_parallel_size",
        "expert": "expert_model_parallel_size",
        "expert_tensor": "expert_tensor_parallel_size",
    }
    plan: dict[str, Any] = {field: values.integer(f"{prefix}.{key}", 1) for field, key in names.items()}
    plan |= {"zero": 1, "recompute": "full" if full else "none"}
    # Megatron's sequence parallelism needs tensor-parallel ranks.
    plan["sequence_parallel"] = plan["tensor"] > 1 and values.flag(f"{prefix}.sequence_parallel", True)
    return plan


def _ends(values: _Values, plan: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    layers_of_ends = {field: values.integer(key, 0) for field, key in keys.items()}
    return plan | {field: layers for field, layers in layers_of_ends.items() if layers}


def _verl(values: _Values) -> dict[str, Any]:
    flat, actor, rollout = values.flat, "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    samples = values.integer(f"{rollout}.n", 1)
    mini = values.integer(f"{actor}.ppo_mini_batch_size", 256)
    per_node = values.integer("trainer.n_gpus_per_node", 8)
    train = values.integer("trainer.nnodes", 1) * per_node
    apart = values.integer("rollout.nnodes", 0)
    generate = apart * values.integer("rollout.n_gpus_per_node", per_node)
    prompts = values.integer("data.train_batch_size", 1024)
    updates = values.integer("async_training.trigger_parameter_sync_step", 1)
    schedule: dict[str, Any] = {"kind": "synchronous"}
    if apart:
        schedule = {"kind": "one-step-off", "split": {"train": train, "generate": generate}}
        if "async_training.staleness_threshold" in flat:
            running = "recompute" if values.flag("async_training.partial_rollout") else "keep"
            age = values.share("async_training.staleness_threshold", 0.0)
            schedule |= {"kind": "asynchronous", "staleness": age, "running": running}
            prompts = mini * updates
    megatron = values.word(f"{actor}.strategy") == "megatron" or any("megatron." in key for key in flat)
    plan, framework = _verl_plan(values, actor, megatron)
    estimators = {"gae": "ppo", "rloo": "rloo", "reinforce_plus_plus": "reinforce++"}
    reference = values.flag(f"{actor}.use_kl_loss") or values.flag("algorithm.use_kl_in_reward")
    algorithm = estimators.get(values.word("algorithm.adv_estimator", "gae"), "grpo" if reference else "dapo")
    longest = values.integer("data.max_response_length", 512)
    prompt = values.integer("data.max_prompt_length", 512)
    tokens = values.integer(f"{actor}.ppo_max_token_len_per_gpu", 16384) * plan["context"]
    row, micro = _rows(tokens, prompt + longest)
    values.flag("reward_model.enable")
    scored_sequences = values.integer(f"{rollout}.log_prob_max_token_len_per_gpu", tokens // plan["context"])
    scoring = _rows(scored_sequences * plan["context"], prompt + longest)[1]
    offload = values.flag(f"{actor}.{'megatron' if megatron else 'fsdp_config'}.optimizer_offload")
    return {
        "title": f"verl: {values.model('actor_rollout_ref.model.path')} on {train + generate} GPUs",
        "model": values.model("actor_rollout_ref.model.path"),
        "gpus": train + generate,
        "framework": framework,
        "workload": {
            "kind": "rl",
            "algorithm": algorithm,
            "prompts": prompts,
            "samples": samples,
            "mini_batch": mini * samples,
            "epochs": values.integer(f"{actor}.ppo_epochs", 1),
            "input": prompt,
            "output": _output(longest),
            "seq_len": row,
        },
        "roles": {
            "train": {
                "plan": plan | ({"micro_batch": micro} if micro > 1 else {}),
                **({"scoring_micro_batch": scoring} if scoring != micro else {}),
                **({"offload": True} if offload else {}),
            },
            "generate": _engine(values, rollout, "tensor_model_parallel_size", "pipeline_model_parallel_size")
            | {"options": {"memory_share": values.share(f"{rollout}.gpu_memory_utilization", 0.5)}}
            | _sglang(values, rollout),
        },
        "schedule": schedule,
    }


def _rows(tokens: int, longest: int) -> tuple[int, int]:
    """Tokens of a row, and rows of a micro batch, of the tokens that a micro batch may have."""
    rows = max(tokens // max(longest, 1), 1)
    return max(tokens // rows, longest), rows


def _sglang(values: _Values, rollout: str) -> dict[str, Any]:
    return {"engine": "sglang-0.5.6"} if values.word(f"{rollout}.name", "vllm") == "sglang" else {}


def _engine(values: _Values, prefix: str, tensor: str, pipeline: str) -> dict[str, Any]:
    degrees = {
        "tensor": values.integer(f"{prefix}.{tensor}", 2 if "rollout" in prefix else 1),
        "pipeline": values.integer(f"{prefix}.{pipeline}", 1),
    }
    return {name: degree for name, degree in degrees.items() if degree > 1}


def _verl_plan(values: _Values, actor: str, megatron: bool) -> tuple[dict[str, Any], str]:
    if megatron:
        transformer = f"{actor}.megatron.override_transformer_config"
        granularity = values.word(f"{transformer}.recompute_granularity")
        plan = _megatron_plan(values, f"{actor}.megatron", granularity == "full")
        if granularity == "selective":
            plan["recompute"] = "selective"
        plan |= _host_optimizer(values, f"{actor}.optim.override_optimizer_config.")
        keys = {
            f"{end}_stage_layers": f"{transformer}.num_layers_in_{end}_pipeline_stage"
            for end in ("first", "last")
        }
        return _ends(values, plan, keys), "verl-megatron"
    full = values.flag("actor_rollout_ref.model.enable_gradient_checkpointing", True)
    plan = {"zero": 3, "recompute": "full" if full else "none"}
    plan["context"] = values.integer(f"{actor}.ulysses_sequence_parallel_size", 1)
    if plan["context"] > 1:
        plan["context_algorithm"] = "ulysses"
    group = values.integer(f"{actor}.fsdp_config.fsdp_size", -1)
    if group > 0:
        plan["shard_group"] = group
    return plan, "verl"


def _host_optimizer(values: _Values, prefix: str) -> dict[str, Any]:
    """Where Megatron's optimizer lies on the host: all of it, which the host updates."""
    return {"place": "megatron-hybrid"} if values.flag(f"{prefix}optimizer_cpu_offload") else {}


def _nemo(values: _Values) -> dict[str, Any]:
    engine = "policy.generation.vllm_cfg"
    per_node, nodes = (
        values.integer("cluster.gpus_per_node", 1),
        values.integer("cluster.num_nodes", 1),
    )
    gpus = per_node * nodes
    schedule: dict[str, Any] = {"kind": "synchronous"}
    if not values.flag("policy.generation.colocated.enabled", True):
        resources = "policy.generation.colocated.resources"
        generate = values.integer(f"{resources}.num_nodes", 1)
        generate *= values.integer(f"{resources}.gpus_per_node", per_node)
        split = {"train": gpus - generate, "generate": generate}
        age = values.integer("grpo.async_grpo.max_trajectory_age_steps", 1)
        schedule = {"kind": "asynchronous", "staleness": float(age), "split": split}
        if not values.flag("grpo.async_grpo.enabled"):
            schedule = {"kind": "synchronous", "split": split}
        elif age == 1:
            schedule = {"kind": "one-step-off", "split": split}
    megatron = values.flag("policy.megatron_cfg.enabled")
    plan = _nemo_plan(values, megatron)
    micro = values.integer("policy.train_micro_batch_size", 4)
    scoring = values.integer("policy.logprob_batch_size", 4)
    longest = values.integer("policy.max_total_sequence_length", 512)
    answers = min(values.integer("policy.generation.max_new_tokens", longest), longest - longest // 32)
    precision = values.word(f"{engine}.precision", "bfloat16")
    packs = values.flag("policy.sequence_packing.enabled", True)
    reference = values.share("loss_fn.reference_policy_kl_penalty", 0.01) > 0
    algorithm = "grpo" if reference else "dapo"
    return {
        "title": f"NeMo RL: {values.model('policy.model_name')} on {gpus} GPUs",
        "model": values.model("policy.model_name"),
        "gpus": gpus,
        "framework": "nemo-rl",
        "workload": {
            "kind": "rl",
            "algorithm": algorithm,
            "prompts": values.integer("grpo.num_prompts_per_step", 32),
            "samples": values.integer("grpo.num_generations_per_prompt", 16),
            "mini_batch": values.integer("policy.train_global_batch_size", 512),
            "input": max(longest - answers, 1),
            "output": _output(answers),
            "seq_len": longest,
        },
        "roles": {
            "train": {
                **({} if megatron else {"framework": "torch-fsdp-eager"}),
                **({} if packs else {"packing": "pad"}),
                "plan": plan | ({"micro_batch": micro} if micro > 1 else {}),
                **({"scoring_micro_batch": scoring} if scoring != micro else {}),
            },
            "generate": _engine(values, engine, "tensor_parallel_size", "pipeline_parallel_size")
            | ({"weights": "fp8"} if precision == "fp8" else {})
            | {"options": {"memory_share": values.share(f"{engine}.gpu_memory_utilization", 0.6)}},
        },
        "schedule": schedule,
    }


def _nemo_plan(values: _Values, megatron: bool) -> dict[str, Any]:
    if megatron:
        prefix = "policy.megatron_cfg"
        plan = _megatron_plan(values, prefix, values.flag(f"{prefix}.activation_checkpointing"))
        plan |= _host_optimizer(values, f"{prefix}.optimizer.")
        keys = {
            f"{end}_stage_layers": f"{prefix}.num_layers_in_{end}_pipeline_stage" for end in ("first", "last")
        }
        return _ends(values, plan, keys)
    prefix = "policy.dtensor_cfg"
    full = values.flag(f"{prefix}.activation_checkpointing")
    plan = {"zero": 3, "recompute": "full" if full else "none"}
    plan["tensor"] = values.integer(f"{prefix}.tensor_parallel_size", 1)
    plan["context"] = values.integer(f"{prefix}.context_parallel_size", 1)
    plan["sequence_parallel"] = plan["tensor"] > 1 and values.flag(f"{prefix}.sequence_parallel")
    return plan


READERS: Mapping[str, tuple[str, Callable[[_Values], dict[str, Any]]]] = {
    "verl": ("actor_rollout_ref.", _verl),
    "nemo-rl": ("grpo.", _nemo),
}
"""Prefix of keys by which a target is recognised, and its reader."""
