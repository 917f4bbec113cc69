"""Answers of the five questions: what ``--json`` prints, the tables, the scenario to copy, and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from core.errors import InfeasibleError, InputError, MeshwrightError
from core.loading import build, parse_text
from meshwright.result_base import Result, rendered
from meshwright.service.questions import QUESTIONS, ServiceQuestion, check_references


def read(kind: str, body: Any) -> ServiceQuestion:
    """The checked question of a request; a scenario of several lines is YAML.

    Raises:
        InputError: unknown keys or names, wrong values, files.
    """
    if (
        isinstance(body, Mapping)
        and "\n" in str(body.get("scenario", ""))
        and isinstance(body["scenario"], str)
    ):
        body = {**body, "scenario": parse_text(body["scenario"], "scenario")}
    question = build(QUESTIONS[kind], body, kind)
    check_references(question)
    return question


def answered(kind: str, body: Any, page: bool = True) -> dict[str, Any]:
    """The answer of a request.

    Args:
        kind: of `QUESTIONS`.
        body: keys and values.
        page: whether the page is drawn too.

    Returns:
        ``answer`` (what ``--json`` prints), ``text``, ``scenario`` (YAML) and ``page`` (HTML) or empty; or
        ``problem``, where nothing fits or meets the targets.

    Raises:
        InputError: a wrong request.
    """
    question = read(kind, body)
    values = {name: value for name, value in question if value is not None}
    try:
        return ANSWERS[kind](values, page)
    except InputError:
        raise
    except MeshwrightError as error:
        return {"problem": str(error), "answer": {}, "text": "", "scenario": "", "page": ""}


def _train(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw

    search = mw.plan(every=page, **values)
    search.check()
    return _all(search, _yaml(search.scenario()), page)


def _serve(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw
    from meshwright.reports.serving_shortfall import nearest_words

    together = values.pop("together")
    answer = mw.deploy(split=not together, **values)
    if not answer.search.plans:
        raise InfeasibleError(nearest_words(answer.search))
    return _all(answer, _yaml(answer.scenario()), page)


def _size(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw

    names = values.pop("clusters")
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    sizing = mw.size(clusters=names, **values)
    if sizing.fastest is None:
        raise InfeasibleError("no plan fits at any size")
    return _all(sizing, "", page)


def _simulate(values: dict[str, Any], page: bool) -> dict[str, Any]:
    from meshwright.jobs import AskOptions, job_of
    from meshwright.questions.scenarios import read_question
    from meshwright.results import StepSimulation

    scenario = values["scenario"]
    question = read_question(scenario) if isinstance(scenario, str) else (scenario, "scenario", Path())
    job = job_of(*question)
    done = job.answer(question, AskOptions(engine=False, detail=20_000))
    if short := job.shortage(done):
        raise InfeasibleError(short)
    # A step's own page needs the event engine, which may take long: its bars and tables stand for it.
    step = isinstance(done, StepSimulation)
    answer = _all(done, _yaml(dict(question[0])), page and not step)
    return {**answer, "page": Result.page(done).text()} if page and step else answer


def _rl(values: dict[str, Any], page: bool) -> dict[str, Any]:
    from meshwright.jobs.rl import search
    from meshwright.questions.post_training import rl_question

    staleness, top = values.pop("staleness", None), values.pop("top")
    ranking = search(rl_question("", values), staleness, top)
    return _all(ranking, _yaml(dict(ranking.search.plans[0].data)), page)


ANSWERS: Mapping[str, Callable[[dict[str, Any], bool], dict[str, Any]]] = {
    "train": _train,
    "serve": _serve,
    "size": _size,
    "simulate": _simulate,
    "rl": _rl,
}
"""Answers by question."""


def _all(result: Any, scenario: str, page: bool) -> dict[str, Any]:
    return {
        "answer": result.to_dict(),
        "text": rendered(result._tables()),
        "scenario": scenario,
        "page": result.html() if page else "",
    }


def _yaml(scenario: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(scenario), sort_keys=False)
