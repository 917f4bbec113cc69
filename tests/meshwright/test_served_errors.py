"""Errors to expect of served predictions, by what was measured."""

import meshwright as mw
from hwmodels.device import devices
from meshwright.measured.served_errors import LEFT_OUT, _errors, served_errors
from meshwright.measured.servers import Evidence
from meshwright.reports.serving_evidence import describe_errors
from simulator.serving.engines import engines

FAMILIES = {engine.engine for engine in engines}


def test_lines_name_engines_and_devices_of_the_catalogue():
    for error in _errors().values():
        engine, _, device = error.of
        assert not engine or engine in FAMILIES
        assert not device or device in devices.names()
        assert error.left_out in {what for left_out in LEFT_OUT.values() for what in left_out}
        assert 0.0 <= error.median <= error.p90 and error.rows >= 10


def test_errors_are_those_of_models_left_out_and_never_smaller():
    """Neither rows of the fit nor other layouts make an answer surer."""
    found = [served_errors(Evidence(close, 1), "", "", "")["tpot"] for close in (3, 2, 1, 0)]
    assert {one.left_out for one in found[:3]} == {"model"}
    assert found[3].median >= found[2].median


def test_an_engine_without_rows_takes_the_errors_of_all():
    assert served_errors(Evidence(0, 0), "orca", "dense", "l4")["tpot"].of == ("", "", "")


def test_answers_say_what_they_may_be_off_by():
    asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "isl": 1000, "osl": 200}
    search = mw.deploy(**asked, rate=4.0, ttft=0.5, tpot=0.03, split=False).search
    stated = {}
    for plan in search.plans:
        errors = describe_errors(search, plan)
        stated[plan.groups[0].shape.pool.pipeline > 1] = sorted(errors)
        assert all(one["left_out"] == "model" for one in errors.values())
    assert stated == {False: ["tpot", "ttft"], True: []}
