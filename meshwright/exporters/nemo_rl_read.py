"""NeMo RL's recipe as a scenario."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.key_values import KeyValues
from meshwright.exporters.post_training_parts import answers, engine_degrees, megatron_layout, trained


def scenario(values: KeyValues) -> dict[str, Any]:
    """The step of post-training that a recipe of NeMo RL runs.

    Raises:
        InputError: a value of a wrong type.
    """
    megatron = values.flag("megatron")
    values.conditions = {"megatron": megatron, "fsdp": not megatron}
    per_node = values.integer("per_node")
    gpus = values.integer("all_nodes") * per_node
    longest = values.integer("seq_len")
    longest_answer = min(values.integer("answer_tokens", longest), longest - longest // 32)
    fp8 = values.word("policy.generation.vllm_cfg.precision") == "fp8"
    train = trained(
        values, _plan(values, megatron), values.integer("micro_batch"), values.integer("scoring_rows")
    )
    return {
        "title": f"NeMo RL: {values.model()} on {gpus} GPUs",
        "model": values.model(),
        "gpus": gpus,
        "framework": "nemo-rl",
        "workload": {
            "kind": "rl",
            "algorithm": "grpo" if values.share("loss_fn.reference_policy_kl_penalty", 0.01) > 0 else "dapo",
            "prompts": values.integer("prompts"),
            "samples": values.integer("samples"),
            "mini_batch": values.integer("mini_answers"),
            "input": max(longest - longest_answer, 1),
            "output": answers(longest_answer),
            "seq_len": longest,
        },
        "roles": {
            "train": {
                **({} if megatron else {"framework": "torch-fsdp-eager"}),
                **({} if values.flag("packs") else {"packing": "pad"}),
                **train,
            },
            "generate": engine_degrees(values) | ({"weights": "fp8"} if fp8 else {}),
        },
        "schedule": _schedule(values, gpus, per_node),
    }


def _schedule(values: KeyValues, gpus: int, per_node: int) -> dict[str, Any]:
    if values.flag("colocated"):
        return {"kind": "synchronous"}
    generate = values.integer("generating_nodes") * values.integer("generating_per_node", per_node)
    split = {"train": gpus - generate, "generate": generate}
    age = values.integer("age")
    if not values.flag("off_policy"):
        return {"kind": "synchronous", "split": split}
    if age == 1:
        return {"kind": "one-step-off", "split": split}
    return {"kind": "asynchronous", "staleness": float(age), "split": split}


def _plan(values: KeyValues, megatron: bool) -> dict[str, Any]:
    recompute = "full" if values.flag("full") else "none"
    if megatron:
        return megatron_layout(values, recompute)
    plan = {"zero": 3, "recompute": recompute}
    plan |= {name: values.integer(name, 1) for name in ("tensor", "context")}
    return plan | {"sequence_parallel": plan["tensor"] > 1 and values.flag("sequence_parallel")}
