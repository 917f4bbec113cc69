"""Questions of ``plan``: each has its own flags, and answers as the old spelling did."""

from __future__ import annotations

import inspect

import pytest

import meshwright as mw
from core.errors import InputError
from meshwright.__main__ import app
from meshwright.commands import PLAN_QUESTIONS
from meshwright.commands.plan import plan
from meshwright.commands.plan_questions import QUESTIONS, flags_of, question_command
from meshwright.questions import arguments

SMALL = ("--model", "llama3.1-8b", "--cluster", "dgx-h100")
TRAIN = (*SMALL, "--gpus", "16", "--seq-len", "8k", "--global-batch", "64")
LOAD = ("--isl", "1000", "--osl", "100", "--ttft", "1", "--tpot", "0.05")


def test_questions_are_named_once():
    assert tuple(QUESTIONS) == PLAN_QUESTIONS


@pytest.mark.parametrize("name", PLAN_QUESTIONS)
def test_flags_of_a_question_are_those_of_plan(name):
    known = inspect.signature(plan).parameters
    assert set(flags_of(name)) <= set(known)
    assert len(QUESTIONS[name].first) <= 11  # ten flags and the scenario
    own = inspect.signature(question_command(name)).parameters
    for flag, parameter in own.items():
        assert flag in QUESTIONS[name].own or parameter.default == known[flag].default


def test_commands_list_few_options_by_hand():
    """Commands take a question's arguments as one type; those of ``plan`` are made from ``QUESTIONS``."""
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
        if not (command.name or "").startswith("plan ")
    }
    most = max(listed, key=lambda name: len(listed[name]))
    assert len(listed[most]) <= 15, f"{most} lists {sorted(listed[most])}"


def test_every_flag_of_plan_belongs_to_a_question():
    spelt = {"serve"}  # the word itself
    read = {flag for name in PLAN_QUESTIONS for flag in flags_of(name)}
    assert set(inspect.signature(plan).parameters) - spelt == read


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (("train", *TRAIN), TRAIN),
        (("serve", *SMALL, "--gpus", "2", *LOAD), ("--serve", *SMALL, "--gpus", "2", *LOAD)),
        (("size", "--tokens", "1T", *TRAIN), ("--tokens", "1T", *TRAIN)),
        (
            ("day", "--rates", "2,5", *SMALL, "--gpus", "8", *LOAD),
            ("--day", "2,5", *SMALL, "--gpus", "8", *LOAD),
        ),
        (
            ("mix", "--types", "l4,a10g", "--model", "llama3.1-8b", "--rate", "2", *LOAD),
            ("--mix", "l4,a10g", "--model", "llama3.1-8b", "--rate", "2", *LOAD),
        ),
    ],
    ids=("train", "serve", "size", "day", "mix"),
)
def test_a_question_answers_as_the_old_spelling(run, new, old):
    named, spelt = run("plan", *new, "--json"), run("plan", *old, "--json")
    assert named.code == spelt.code == 0, (named.err, spelt.err)
    assert named.out == spelt.out
    assert "in the next version" not in named.err
    assert ("in the next version" in spelt.err) == (new[0] != "train")


@pytest.mark.parametrize("name", PLAN_QUESTIONS)
def test_help_shows_the_first_flags_before_the_others(run, name):
    shown = run("plan", name, "--help").out
    assert ("More options" in shown) == bool(QUESTIONS[name].rest)
    if QUESTIONS[name].rest:
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
    asked = "plan --tokens 1T --model llama3.1-8b --cluster dgx-h100 --global-batch 64"
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
