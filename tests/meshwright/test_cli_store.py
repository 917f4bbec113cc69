"""`--store` of plan --refine, whatif and validate: a second run prints the same and computes nothing."""

from __future__ import annotations

import pytest

from evidence.serving.ledger import PUBLISHED as SERVED
from meshwright.validation.rows import PUBLISHED

SERVING = (
    "--model",
    "llama3.1-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "1",
    "--isl",
    "500",
    "--osl",
    "20",
    "--ttft",
    "1",
)

COMMANDS = {
    "refine": (
        ["plan", "llama3-8b-64-h100", "--limit", "pipeline=2", "--refine", "2"],
        "planner.training.refine.run_plan",
    ),
    "whatif": (["whatif", "nic-gpt3-175b"], "meshwright.variations.answer._plain_answer"),
    "validate": (
        ["validate", "--cases", str(PUBLISHED / "fsdp.csv")],
        "meshwright.validation.ledger._predicted",
    ),
    "validate serving": (
        ["validate", "--serving", str(SERVED / "vllm_weight_only.csv"), "--summary"],
        "evidence.serving.ledger.predictions",
    ),
    "refine serving": (
        ["plan", "serve", *SERVING, "--refine", "1", "--top", "1"],
        "planner.serving.refine.bisect",
    ),
}


def refuse(*_: object) -> None:
    raise AssertionError("computed again")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_run_computes_nothing(run, tmp_path, monkeypatch, name):
    words, computes = COMMANDS[name]
    words = [*words, "--workers", "1", "--json"]
    bare = run(*words)
    assert bare.code == 0, bare.err
    kept = [*words, "--store", str(tmp_path / "store.db")]
    assert run(*kept).out == bare.out
    monkeypatch.setattr(computes, refuse)
    assert run(*kept).out == bare.out
    with pytest.raises(AssertionError, match="computed again"):
        run(*words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["plan", "llama3-8b-64-h100", "--store", "x.db"], "--store: it says where --refine runs"),
        (["plan", "llama3-8b-64-h100", "--refine", "1", "--executor", "rays"], "unknown executor 'rays'"),
        (
            ["whatif", "nic-gpt3-175b", "--address", "127.0.0.1:1"],
            "--address: names a Ray cluster; --executor ray",
        ),
        (["validate", "--kernels", ".", "--store", "x.db"], "--store go with --cases and --serving"),
    ],
)
def test_wrong_flags_are_named(run, words, problem):
    ran = run(*words)
    assert ran.code == 2
    assert problem in ran.err
