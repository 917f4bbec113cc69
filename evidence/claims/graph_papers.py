"""Published gains of layers as stages over parts of a graph, and what the simulator says.

python -m evidence.claims.graph_papers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion
from simulator.graphs.epoch import Epoch, predict_epoch
from simulator.graphs.question import make_graph

Epochs = Mapping[str, Epoch]
GNNPIPE = "papers/graph-gnnpipe"


@dataclass(frozen=True)
class GraphClaim:
    """A published figure of a scenario in ``scenarios/papers``.

    Attributes:
        scenario: its name.
        what: what the figure compares.
        published: the figure as published.
        band: least and most that the prediction may be.
        figure: of the predicted epochs by name.
    """

    scenario: str
    what: str
    published: float
    band: tuple[float, float]
    figure: Callable[[Epochs], float]


def _fewer_bytes(epochs: Epochs) -> float:
    """Copies between partitions over what stages pass on."""
    return exchanged(epochs["base"]) / exchanged(epochs["stages"])


def exchanged(epoch: Epoch) -> float:
    """Bytes of vertices that leave a device in an epoch, over all devices."""
    return epoch.replica_bytes + epoch.boundary_bytes


def _less_time(epochs: Epochs) -> float:
    return epochs["base"].epoch_s / epochs["stages"].epoch_s


GRAPH_CLAIMS = (
    GraphClaim(GNNPIPE, "GNNPipe: bytes, mean of its graphs", 8.69, (8.6, 8.8), _fewer_bytes),
    GraphClaim(GNNPIPE, "GNNPipe: time, mean of its graphs", 1.58, (1.2, 2.5), _less_time),
)


def epochs_of(scenario: str) -> dict[str, Epoch]:
    """Predicted epochs of a scenario by name; its base is ``base``."""
    question = WhatIfQuestion.read(shipped_scenarios()[scenario])
    runs = {"base": question.data} | {run.name: run.data for run in question.runs()}
    return {
        name: predict_epoch(make_graph(data, question.where, question.folder)) for name, data in runs.items()
    }


def main() -> None:
    print("| claim | published | predicted | band |\n|---|---|---|---|")
    for claim in GRAPH_CLAIMS:
        least, most = claim.band
        figure = claim.figure(epochs_of(claim.scenario))
        print(f"| {claim.what} | {claim.published:g} | {figure:.2f} | {least:g} to {most:g} |")


if __name__ == "__main__":
    main()
