"""Published gains of layers as stages over parts of a graph, and what the simulator says.

python -m evidence.claims.graph_papers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evidence.claims.claim_files import Band, FigureClaim, named_runs, paper, read_figures
from simulator.graphs.epoch import Epoch, predict_epoch
from simulator.graphs.question import make_graph

Epochs = Mapping[str, Epoch]


class GraphClaim(FigureClaim):
    """A published gain of a scenario in ``scenarios/papers``; its figure is one of `FIGURES`."""

    published: float
    """The gain as published."""
    band: Band
    """Least and most that the prediction may be."""


def fewer_bytes(epochs: Epochs) -> float:
    """Copies between partitions over what stages pass on."""
    return exchanged(epochs["base"]) / exchanged(epochs["stages"])


def exchanged(epoch: Epoch) -> float:
    """Bytes of vertices that leave a device in an epoch, over all devices."""
    return epoch.replica_bytes + epoch.boundary_bytes


def less_time(epochs: Epochs) -> float:
    """Time of an epoch of partitions over that of stages."""
    return epochs["base"].epoch_s / epochs["stages"].epoch_s


FIGURES: dict[str, Callable[..., float]] = {"fewer_bytes": fewer_bytes, "less_time": less_time}
"""Predictions by name, from the predicted epochs of a scenario by name."""
GRAPH_CLAIMS = read_figures("graphs", GraphClaim, FIGURES)


def predicted(claim: GraphClaim, epochs: Epochs) -> float:
    """The claim's figure."""
    return FIGURES[claim.figure](epochs, **claim.given)


def epochs_of(scenario: str) -> dict[str, Epoch]:
    """Predicted epochs of a scenario by name; its base is ``base``."""
    return {
        name: predict_epoch(make_graph(run.data, run.where, run.folder))
        for name, run in named_runs(paper(scenario)).items()
    }


def main() -> None:
    print("| claim | published | predicted | band |\n|---|---|---|---|")
    for claim in GRAPH_CLAIMS:
        least, largest = claim.band
        figure = predicted(claim, epochs_of(claim.scenario))
        print(f"| {claim.what} | {claim.published:g} | {figure:.2f} | {least:g} to {largest:g} |")


if __name__ == "__main__":
    main()
