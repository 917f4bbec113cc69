"""Answers of the four questions: what ``--json`` prints, the tables, the scenario to copy, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from core.errors import InfeasibleError, InputError, MeshwrightError
from core.loading import build
from meshwright.service.questions import QUESTIONS, ServiceQuestion, check_references
from meshwright.shown import rendered


def read(kind: str, body: Any) -> ServiceQuestion:
    """The checked question of a request.

    Raises:
        InputError: unknown keys or names, wrong values, files.
    """
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
        return {"train": _train, "serve": _serve, "size": _size, "simulate": _simulate}[kind](values, page)
    except InputError:
        raise
    except MeshwrightError as error:
        return {"problem": str(error), "answer": {}, "text": "", "scenario": "", "page": ""}


def _train(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw
    from meshwright.pages.plans import write_plans

    search = mw.plan(every=page, **values)
    search.check()
    drawn = _drawn(lambda path: write_plans(path, search)) if page else ""
    return _all(search, _yaml(search.scenario()), drawn)


def _serve(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw
    from meshwright.pages.answers import write_deployments
    from meshwright.reports.serving_plans import deployment_tables, describe_deployments, nearest_words

    together = values.pop("together")
    found = mw.deploy(split=not together, **values)
    search = found.search
    if not search.plans:
        raise InfeasibleError(nearest_words(search))
    tables = deployment_tables(search, found.refined, found.look)
    drawn = _drawn(lambda path: write_deployments(path, search, tables)) if page else ""
    return {
        "answer": describe_deployments(search, found.refined, found.look),
        "text": rendered(tables),
        "scenario": _yaml(found.scenario()),
        "page": drawn,
    }


def _size(values: dict[str, Any], page: bool) -> dict[str, Any]:
    import meshwright as mw
    from meshwright.pages.sizing import write_sizing
    from meshwright.reports.sizing import describe_sizing, sizing_tables

    names = values.pop("clusters")
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    sizing = mw.size(clusters=names, **values)
    if sizing.fastest is None:
        raise InfeasibleError("no plan fits at any size")
    drawn = _drawn(lambda path: write_sizing(path, sizing)) if page else ""
    return {
        "answer": describe_sizing(sizing),
        "text": rendered(sizing_tables(sizing)),
        "scenario": "",
        "page": drawn,
    }


def _simulate(values: dict[str, Any], page: bool) -> dict[str, Any]:
    from meshwright.jobs import AskOptions, job_of
    from meshwright.questions.scenarios import read_question

    scenario = values["scenario"]
    question = read_question(scenario) if isinstance(scenario, str) else (scenario, "scenario", Path())
    job = job_of(*question)
    done = job.answer(question, AskOptions(engine=False, detail=20_000))
    if short := job.shortage(done):
        raise InfeasibleError(short)
    drawn = ""
    if page and "html" in job.files and job.kind != "step":
        drawn = _drawn(lambda path: job.files["html"](done, path))
    return {
        "answer": done.to_dict(),
        "text": rendered(job.tables(done)),
        "scenario": _yaml(dict(question[0])),
        "page": drawn,
    }


def _all(result: Any, scenario: str, page: str) -> dict[str, Any]:
    return {
        "answer": result.to_dict(),
        "text": rendered(result._tables()),
        "scenario": scenario,
        "page": page,
    }


def _yaml(scenario: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(scenario), sort_keys=False)


def _drawn(write: Any) -> str:
    """A page as text: pages are written to files, here to one that is gone afterwards."""
    with TemporaryDirectory(prefix="meshwright-page-") as folder:
        path = Path(folder) / "page.html"
        write(path)
        return path.read_text(encoding="utf-8")
