"""One device exchanges nothing: no bytes of tables, of a graph, or of patches."""

from pathlib import Path

from simulator.graphs.epoch import predict_epoch
from simulator.graphs.question import make_graph
from simulator.tables.scenario import make_tables
from simulator.tables.step import predict_step
from tests.laws.other_kinds import diffused, graphed, request, tabled
from tests.laws.questions import Choose, Question, strategy

NUMBER = 93


def alone(choose: Choose) -> Question:
    """A recommendation model, a graph or a batch by diffusion on one device."""
    question = choose((tabled, graphed, diffused))(choose)
    if "gpus" in question:
        return {**question, "gpus": 1}
    return {**question, "layout": {key: kept for key, kept in question["layout"].items() if key == "offload"}}


QUESTIONS = strategy(alone)


def check(question: Question) -> None:
    """Ask for bytes and seconds of the wire."""
    kind = question["workload"]["kind"]
    if kind == "graph":
        epoch = predict_epoch(make_graph(question, "law", Path()))
        assert epoch.boundary_bytes == 0 and epoch.replica_bytes == 0
        return
    if kind == "tables":
        step = predict_step(make_tables(question, "law", Path()))
        assert step.sent_bytes == 0 and all(part.wire_s == 0 for part in step.parts.values())
        return
    batch = request(question)
    assert batch.received_bytes == 0 and batch.times.exposed_s == 0
