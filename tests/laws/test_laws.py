"""Every law on a few random questions, the suite's command, and the page that numbers the laws."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training import step_time
from tests.laws import __main__ as command_line
from tests.laws.answers import ROUNDING
from tests.laws.batches import none_slower, steps_on
from tests.laws.questions import strategy, training
from tests.laws.registry import Law, laws
from tests.laws.sweep import Journal, sweep
from tests.laws.training.faster_links import faster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "invariants.md"
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
SEED = 35
LAWS = laws()


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_a_law_holds(name):
    law = LAWS[name]
    tally = sweep(law, SEED, questions=law.ci, shrink_s=20)
    assert tally.violations == 0, f"{tally.problem}: {tally.smallest}"
    assert tally.answered > law.ci / 2, f"{tally.refused} of the questions have no answer"


@pytest.mark.slow
def test_products_are_no_slower_with_faster_memory():
    plan = {"tensor": 4, "pipeline": 2, "micro_batch": 2, "zero": 1, "sequence_parallel": True}
    workload = {"seq_len": 4096, "global_batch": 256, "precision": "bf16"}
    question = {"model": "llama2-13b", "cluster": "dgx-b200", "gpus": 128, "workload": workload, "plan": plan}
    LAWS["memory-bandwidth"].check(question)


@pytest.mark.slow
def test_graphs_are_raised_for_a_rate_that_needs_them():
    """At 0.9 of the largest rate no deployment met the targets: graphs were raised for batches that do."""
    targets = {"ttft": 2.0, "tpot": 0.02, "engine": "sglang-0.5.12"}
    LAWS["rates-priced"].check(
        {"model": "gpt-oss-20b", "cluster": "dgx-h100", "gpus": 4, "isl": 100, "osl": 20, **targets}
    )


@pytest.mark.slow
def test_graphs_are_raised_for_a_rate_that_captured_ones_do_not_carry():
    """Without a rate the pool of decodes alone had batches beyond the graphs; with one it had not, nor larger
    graphs, and the largest rate was not carried."""
    targets = {"ttft": 0.5, "tpot": 0.1, "engine": "sglang-0.5.12"}
    LAWS["rates-priced"].check(
        {"model": "gpt-oss-20b", "cluster": "dgx-a100-80gb", "gpus": 2, "isl": 700, "osl": 300, **targets}
    )


@pytest.mark.slow
def test_passes_without_a_partner_are_no_slower_on_faster_links():
    """Where the host sets the pace, what such passes expose came on top of their launches: 0.01 % slower."""
    workload = {"seq_len": 1024, "global_batch": 16, "precision": "bf16"}
    LAWS["faster-links"].check(
        {"model": "qwen3-30b-a3b", "cluster": "dgx-a100-80gb", "gpus": 32, "workload": workload, "sample": 1}
    )


INTERLEAVED = {"schedule": "interleaved", "sequence_parallel": True, "zero": 2}
ALLOWED = {"framework": "megatron-core", "allow": ["tensor_form", "overlap_recompute"]}


@pytest.mark.parametrize(
    ("model", "cluster", "gpus", "workload", "plan"),
    [
        (
            *("qwen2.5-7b", "dgx-b300", 128, {"seq_len": 4096, "global_batch": 2048, "precision": "bf16"}),
            {"tensor": 2, "pipeline": 4, "virtual_pipeline": 4, "context": 2, "micro_batch": 1}
            | {"recompute": "none", "overlap_tensor": "backward", "overlap_pipeline": False}
            | {"first_stage_layers": 6, "last_stage_layers": 6, "context_algorithm": "all_gather"},
        ),
        (
            *("deepseek-v3", "aws-p5", 64, {"seq_len": 1024, "global_batch": 256, "precision": "fp8"}),
            {"tensor": 8, "pipeline": 2, "virtual_pipeline": 7, "expert": 8, "micro_batch": 16}
            | {"recompute": "full", "overlap_tensor": "flux", "overlap_expert": True}
            | {"first_stage_layers": 31, "last_stage_layers": 30},
        ),
    ],
)
def test_passes_that_no_rank_waits_for_are_no_windows(model, cluster, gpus, workload, plan):
    """The longest backward pass was not one of the stage that sets the pace: up to 0.21 % slower."""
    question = {"model": model, "cluster": cluster, "gpus": gpus, "workload": workload}
    question |= ALLOWED | {"plan": INTERLEAVED | plan}
    scenario = make_scenario(question, "law", ROOT)
    setting, plans = scenario.setting, Plans.of(scenario.plan)
    before, allowed = step_time(setting, plans), np.full(1, ROUNDING)
    for what, links in faster(setting.cluster):
        none_slower(steps_on(setting, plans, lambda _, new=links: new), before, allowed, plans, what)


def test_the_last_stage_of_several_kinds_of_layers_is_one_of_its_group():
    """Gemma 2 alternates two kinds: the group of its last stage had no stage, and took 1.5 % longer."""
    plan = {"micro_batch": 2, "zero": 1, "recompute": "none", "pipeline": 2}
    plan |= {"rank_order": "tensor-context-data-pipeline"}
    workload = {"seq_len": 1024, "global_batch": 64, "precision": "bf16"}
    question = {"model": "gemma2-9b", "cluster": "aws-p5", "gpus": 32, "workload": workload, "plan": plan}
    LAWS["groups-alike"].check(question)


def broken_for(many: int) -> Law:
    """A law that no plan of so many and more GPUs keeps."""

    def check(question):
        assert question["gpus"] < many, "too many GPUs"

    return Law(0, "false", Path(), "", strategy(training), check, False, 1)


def test_a_broken_law_is_counted_and_made_small():
    tally = sweep(broken_for(64), 1, questions=100)
    assert 0 < tally.violations < tally.answered == 100
    assert tally.smallest is not None and tally.smallest["gpus"] == 64
    assert tally.smallest["plan"].get("tensor", 1) == 1
    assert tally.problem.startswith("too many GPUs")


def test_a_broken_question_is_told_where_no_smaller_one_is_looked_for():
    tally = sweep(broken_for(64), 1, questions=100, shrink_s=0.0)
    assert tally.smallest is not None and tally.smallest["gpus"] >= 64


def test_a_seed_asks_the_same_questions():
    first, second = (sweep(broken_for(64), 7, questions=60) for _ in range(2))
    assert (first.violations, first.smallest) == (second.violations, second.smallest)


def test_a_sweep_that_was_ended_goes_on_from_its_journal(tmp_path):
    path, asked = tmp_path / "verdicts", []
    law = broken_for(64)

    def counted(question):
        asked.append(question)
        law.check(question)

    counting = replace(law, check=counted)
    whole = sweep(law, 7, questions=60, shrink_s=0.0)
    sweep(counting, 7, questions=20, shrink_s=0.0, journal=Journal(path, "0123abcd"))
    before = len(asked)
    rest = sweep(counting, 7, questions=60, shrink_s=0.0, journal=Journal(path, "0123abcd"))
    assert before < len(asked) and len({str(question) for question in asked}) == len(asked)
    assert (rest.answered, rest.violations) == (whole.answered, whole.violations)
    assert not Journal(path, "another1").of(law)


def test_time_ends_a_sweep():
    tally = sweep(broken_for(1024), 1, seconds=0.2)
    assert tally.answered > 0
    assert tally.seconds < 5


def test_a_broken_law_is_written_and_can_be_asked_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "laws", lambda: {"false": broken_for(64)})
    folder = ["--folder", str(tmp_path)]
    assert command_line.main(["--questions", "50", "--seed", "0x1", *folder]) == 1
    out = capsys.readouterr().out
    (path,) = tmp_path.glob("*.yaml")
    assert f"meshwright simulate {path}" in out
    assert "1 laws, " in out
    assert command_line.main(["false", "--question", str(path)]) == 1
    assert "too many GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seconds", "long"], "seconds above 0"),
        (["--seconds"], "expected one argument"),
        (["--seconds", "0"], "seconds above 0"),
        (["--seconds", "nan"], "seconds above 0"),
        (["--seed", "x"], "a whole number is needed, found 'x'"),
        (["--seed"], "expected one argument"),
        (["--questions", "0"], "above 0"),
        (["--questions", "many"], "a whole number is needed, found 'many'"),
        (["--questions", "2.5"], "a whole number is needed, found '2.5'"),
        (["--questions"], "expected one argument"),
        (["--journal"], "expected one argument"),
        (["--journal", "tests"], "Is a directory"),
        (["--journal", "README.md"], "no verdict of a law"),
        (["memory-doubeld"], "did you mean 'memory-doubled'?"),
        (["99999"], "no law is named '99999'"),
        (["--question", "x.yaml"], "needs the name of one law"),
        (["--question", "x.yaml", "1"], None),
    ],
)
def test_wrong_words_are_one_sentence(words, said, capsys):
    try:
        code = command_line.main(words)
    except SystemExit as ended:
        code = ended.code
    err = capsys.readouterr().err
    assert code == 2
    assert len(err.splitlines()) == 1
    assert said is None or said in err


def rows() -> list[tuple[int, str, list[str], str]]:
    """Number, statement, places of tests and what taught it, of each row of the page."""
    return [
        (int(number), statement, re.findall(r"`([^`]+)`", places), taught)
        for number, statement, places, taught in ROW.findall(PAGE.read_text(encoding="utf-8"))
    ]


def test_every_law_has_its_row_with_its_statement():
    told = {number: (statement, places) for number, statement, places, _ in rows()}
    for law in LAWS.values():
        assert law.number in told, f"docs/invariants.md has no row {law.number} for {law.name}"
        statement, places = told[law.number]
        assert statement == law.statement
        assert str(law.path.relative_to(ROOT)) in places


def test_numbers_of_laws_are_their_own():
    numbers = [number for number, *_ in rows()]
    assert len(set(numbers)) == len(numbers)
    assert len({law.number for law in LAWS.values()}) == len(LAWS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row[0]))
def test_every_row_names_tests_that_are_there(row):
    number, _, places, taught = row
    assert places
    assert taught
    for place in places:
        path, _, name = place.partition("::")
        assert (ROOT / path).is_file(), place
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), place
        elif path.startswith("tests/laws/"):
            assert number in {law.number for law in LAWS.values()}, f"{place} is no law"


def test_prompts_share_of_a_padded_step_shortens_no_wait_for_a_slot():
    question = {"model": "gpt-oss-20b", "cluster": "dgx-h200", "gpus": 1, "engine": "vllm-0.19"}
    question |= {"isl": 700, "osl": 100, "ttft": 0.5, "tpot": 0.02}
    laws()["latency-rises"].check(question)
