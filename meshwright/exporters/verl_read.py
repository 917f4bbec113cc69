"""verl's configuration as a scenario."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.key_values import KeyValues
from meshwright.exporters.post_training_parts import answers, engine_degrees, megatron_layout, trained

ACTOR = "actor_rollout_ref.actor"


def scenario(values: KeyValues) -> dict[str, Any]:
    """The step of post-training that a configuration of verl runs.

    Raises:
        InputError: a value of a wrong type.
    """
    megatron = values.word(f"{ACTOR}.strategy") == "megatron" or any(
        "megatron." in key for key in values.flat
    )
    values.conditions = {"megatron": megatron, "fsdp": not megatron}
    prompts, samples, mini = (values.integer(name) for name in ("prompts", "samples", "mini_prompts"))
    per_node = values.integer("per_node")
    train = values.integer("nodes") * per_node
    generate = values.integer("generating_nodes") * values.integer("generating_per_node", per_node)
    schedule = _schedule(values, train, generate)
    if schedule["kind"] == "asynchronous":
        prompts = mini * values.integer("updates")
    plan = _plan(values, megatron)
    prompt, longest = values.integer("prompt_tokens"), values.integer("answer_tokens")
    tokens = values.integer("row_tokens")
    row, micro = _rows(tokens * plan["context"], prompt + longest)
    scoring = _rows(values.integer("scoring_tokens", tokens) * plan["context"], prompt + longest)[1]
    values.flag("reward_model")
    offload = values.flag(f"{ACTOR}.{'megatron' if megatron else 'fsdp_config'}.optimizer_offload")
    sglang = {"engine": "sglang-0.5.6"} if values.word("engine") == "sglang" else {}
    return {
        "title": f"verl: {values.model()} on {train + generate} GPUs",
        "model": values.model(),
        "gpus": train + generate,
        "framework": "verl-megatron" if megatron else "verl",
        "workload": {
            "kind": "rl",
            "algorithm": _algorithm(values),
            "prompts": prompts,
            "samples": samples,
            "mini_batch": mini * samples,
            "epochs": values.integer("epochs"),
            "input": prompt,
            "output": answers(longest),
            "seq_len": row,
        },
        "roles": {
            "train": trained(values, plan, micro, scoring) | ({"offload": True} if offload else {}),
            "generate": engine_degrees(values) | sglang,
        },
        "schedule": schedule,
    }


def _schedule(values: KeyValues, train: int, generate: int) -> dict[str, Any]:
    if not generate:
        return {"kind": "synchronous"}
    split = {"train": train, "generate": generate}
    if not values.states("staleness"):
        return {"kind": "one-step-off", "split": split}
    running = "recompute" if values.flag("resumes") else "keep"
    return {
        "kind": "asynchronous",
        "split": split,
        "staleness": values.share("staleness", 0.0),
        "running": running,
    }


def _algorithm(values: KeyValues) -> str:
    """By its estimator of advantages; grpo and dapo share one, and differ in the reference."""
    penalties = [values.flag(name) for name in ("reference", "algorithm.use_kl_in_reward")]
    shared = "grpo" if any(penalties) else "dapo"
    names = {word: name for name, word in values.keys.estimators.items() if name not in ("grpo", "dapo")}
    return names.get(values.word("estimator"), shared)


def _plan(values: KeyValues, megatron: bool) -> dict[str, Any]:
    if megatron:
        granularity = values.word("granularity")
        return megatron_layout(values, granularity if granularity in ("full", "selective") else "none")
    plan = {"zero": 3, "recompute": "full" if values.flag("full") else "none"}
    plan["context"] = values.integer("context", 1)
    if plan["context"] > 1:
        plan["context_algorithm"] = "ulysses"
    group = values.integer("shard_group")
    return plan | ({"shard_group": group} if group > 0 else {})


def _rows(tokens: int, longest: int) -> tuple[int, int]:
    """Tokens of a row, and rows of a micro batch, of the tokens that a micro batch may have."""
    rows = max(tokens // max(longest, 1), 1)
    return max(tokens // rows, longest), rows
