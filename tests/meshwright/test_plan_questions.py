"""Questions of ``plan``: each has its own flags, and answers as the old spelling did."""

from __future__ import annotations

import inspect

import pytest

import meshwright as mw
from core.errors import InputError
from meshwright.__main__ import app
from meshwright.commands import PLAN_QUESTIONS
from meshwright.commands.flags import options_of
from meshwright.commands.plan import plan
from meshwright.commands.plan_flags import ASKED, PARTS
from meshwright.commands.plan_questions import HELP, kinds_of, question_command
from meshwright.questions import arguments

SMALL = ("--model", "llama3.1-8b", "--cluster", "dgx-h100")
TRAIN = (*SMALL, "--gpus", "16", "--seq-len", "8k", "--global-batch", "64")
LOAD = ("--isl", "1000", "--osl", "100", "--ttft", "1", "--tpot", "0.05")


def test_questions_are_named_once():
    assert tuple(HELP) == tuple(dict.fromkeys(kind.name for kind in ASKED)) == PLAN_QUESTIONS


@pytest.mark.parametrize("name", PLAN_QUESTIONS)
def test_a_question_has_the_flags_of_its_dataclass(name):
    read = {flag.name: flag.default for kind in kinds_of(name) for flag in options_of(kind)}
    own = {flag: parameter.default for flag, parameter in _flags_of(question_command(name)).items()}
    assert own == read
    assert len(kinds_of(name)[0].first) <= 11  # ten flags and the scenario
    assert set(kinds_of(name)[0].first) <= set(read)


def _flags_of(command):
    return inspect.signature(command).parameters


def test_a_flag_has_one_default_in_all_questions():
    defaults = {}
    for kind in ASKED:
        for flag in options_of(kind):
            if flag.default is not inspect.Parameter.empty:
                assert defaults.setdefault(flag.name, flag.default) == flag.default, flag.name


def test_flags_that_a_part_does_not_read_are_flags_of_a_question():
    known = {flag.name for kind in ASKED for flag in options_of(kind)}
    assert all(set(part.unread) <= known for part in PARTS.values())


def test_commands_list_few_options_by_hand():
    """Commands take a question's arguments as one type; those of ``plan`` are made from dataclasses."""
    question = {
        name
        for kind in vars(arguments).values()
        if isinstance(kind, type) and kind.__name__.endswith("Arguments")
        for name in kind.__annotations__
    }
    listed = {
        command.name or command.callback.__name__: set(
            inspect.signature(inspect.unwrap(command.callback)).parameters
        )
        - question
        for command in app.registered_commands
        if not (command.name or command.callback.__name__).startswith("plan")
    }
    most = max(listed, key=lambda name: len(listed[name]))
    assert len(listed[most]) <= 15, f"{most} lists {sorted(listed[most])}"


def test_plan_reads_the_flags_of_the_questions_that_scenarios_ask():
    read = {flag for name in ("train", "serve", "rl") for flag in _flags_of(question_command(name))}
    assert set(_flags_of(plan)) == read


def test_without_a_question_flags_ask_about_training(run):
    named, spelt = run("plan", "train", *TRAIN, "--json"), run("plan", *TRAIN, "--json")
    assert named.code == spelt.code == 0, (named.err, spelt.err)
    assert named.out == spelt.out


@pytest.mark.parametrize(
    ("old", "new"),
    [("--serve", "plan serve"), ("--day=2,5", "plan day --rates"), ("--mix=l4", "plan mix --types")],
)
def test_former_spellings_name_the_question(refused, old, new):
    assert f"it belongs to {new!r}" in refused("plan", old, *SMALL)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("llama3-8b-64-h100", "--isl", "100"), "--isl: it is of plan serve and of plan mix"),
        (
            ("serve-llama3-70b", "--seq-len", "8k"),
            "--seq-len: it is of plan train and of plan size, not of plan serve",
        ),
        (("serve-llama3-70b", "--precision", "fp8"), "--fix weights=fp8"),
        (("rl-qwen3-30b", "--top", "1", "--rate", "1"), "--rate: post-training reads its scenario"),
        (("train", *TRAIN, "--isl", "100"), "it belongs to 'plan serve'"),
        (("train", "--model", "gpt2", "--staleness", "1"), "it belongs to 'plan rl'"),
    ],
)
def test_flags_of_another_question_name_it(refused, asked, told):
    assert told in refused("plan", *asked)


@pytest.mark.parametrize("name", PLAN_QUESTIONS)
def test_help_shows_the_first_flags_before_the_others(run, name):
    shown = run("plan", name, "--help").out
    rest = set(_flags_of(question_command(name))) - set(kinds_of(name)[0].first)
    assert ("More options" in shown) == bool(rest)
    if rest:
        assert shown.index("Options") < shown.index("More options")
    assert f"meshwright plan {name}" in shown


def test_flags_of_other_questions_are_unknown(run):
    ran = run("plan", "train", *TRAIN, "--isl", "100")
    assert ran.code == 2
    assert "no such option" in ran.err


def test_a_scenario_of_the_other_kind_is_refused(refused):
    assert "meshwright plan serve serve-llama3-70b" in refused("plan", "train", "serve-llama3-70b")
    assert "meshwright plan train llama3-8b-64-h100" in refused("plan", "serve", "llama3-8b-64-h100")


def test_the_api_reads_numbers_as_people_write_them():
    asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "global_batch": 64}
    texts = mw.plan(**asked, gpus="16", seq_len="8k")
    assert texts.to_dict() == mw.plan(**asked, gpus=16, seq_len=8192).to_dict()
    sizes = {"model": "llama3.1-8b", "clusters": ["dgx-h100"], "global_batch": 64}
    sized = mw.size(**sizes, seq_len="8k", tokens=1e12, gpus="8..16")
    assert {size.gpus for size in sized.sizes} == {8, 16}
    with pytest.raises(InputError, match="must be a whole number, as 8192, 8k or 4M"):
        mw.plan(**asked, gpus=16, seq_len="long")


def test_sizes_read_no_recipe(refused):
    asked = "plan train --gpus 8..16 --model llama3.1-8b --cluster dgx-h100 --global-batch 64"
    assert "rankings of one size read it" in refused(*asked.split(), "--recipe", "any")


def test_adapters_have_a_flag():
    asked = {
        "model": "llama3.1-8b",
        "cluster": "dgx-a100-80gb",
        "gpus": 8,
        "global_batch": 64,
        "seq_len": 4096,
    }
    frozen, all_trained = mw.plan(**asked, adapter="16:nf4"), mw.plan(**asked)
    assert frozen.result.setting.training.adapter.base == "nf4"
    assert frozen.result.step.time[0] < all_trained.result.step.time[0]


@pytest.mark.slow
def test_post_training_asked_by_flags_is_the_scenario_that_it_saves(run, tmp_path):
    asked = ("--model", "qwen3-1.7b", "--cluster", "dgx-h100", "--gpus", "8", "--osl", "500", "--top", "1")
    saved, page = tmp_path / "rl.yaml", tmp_path / "rl.html"
    by_flags = run("plan", "rl", *asked, "--save", str(saved), "--html", str(page), "--json")
    assert by_flags.code == 0, by_flags.err
    assert "500 out in the median, 602 at most" in by_flags.err
    of_file = run("plan", "rl", str(saved), "--top", "1", "--json")
    assert of_file.out == by_flags.out
    words = page.read_text(encoding="utf-8")
    assert "Answers an hour" in words
    assert ", rollouts TP" in words
    assert "Roles over a step" in words
