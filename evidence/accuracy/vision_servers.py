"""Measured servers of vision-language models beside predictions: ML.ENERGY's image chats.

    python -m benchmarks.vision_servers ../shared/serving/energy.csv.gz

The file has the batch that ran, output tokens and the median gap of Qwen3-VL on H100 and B200 (vLLM 0.11.1).
Pictures and prompts are not in it: one picture of 400 tokens and 100 tokens of text are taken (assumed; the
file's study finds about 500 tokens in all). Beside text of the same length, a stream waits for the towers of
requests that begin meanwhile, and for the host's time of their pictures (`Engine.picture_s`), which is fitted
here on H100: what a request with a picture takes beyond both, less what a request of text takes beyond its
prediction. "left out" takes the host's time from the other models. One B200 alone is host-bound in this file
(gaps of 30 to 50 ms whatever the model) and is printed apart.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evidence.accuracy.errors import Errors
from evidence.command import command
from evidence.serving.case import MeasuredRow
from evidence.serving.collection import predictions, read_case
from evidence.serving.energy import Energy
from meshwright.validation.rows import SkippedRow
from simulator.models.towers import Picture, published_tower
from simulator.serving.encoders import EncoderTimes

PICTURE = Picture(640, 640)
"""400 tokens in Qwen3-VL."""
TASKS = ("image-chat", "lm-arena-chat")
FITTED_ON = "h100-sxm"
COLUMNS = {
    "median gap": "itl_ms_p50",
    "tokens a second": "out_tok_s",
    "energy of a token": "j_per_output_token",
}


@dataclass(frozen=True, eq=False)
class Chat:
    """A measured row and its prediction as text."""

    row: MeasuredRow
    question: Energy
    text: dict[str, float]

    @property
    def sees(self) -> bool:
        """Whether its requests have a picture."""
        return self.row.text("task") == TASKS[0]

    @property
    def model(self) -> str:
        """Its model, whatever the format."""
        return self.row.text("model").rpartition("/")[2].removesuffix("-FP8")

    @property
    def device(self) -> str:
        """Its devices, those of one B200 apart."""
        alone = self.row.text("gpu") == "b200" and self.row.count("n_gpus") == 1
        return "one b200" if alone else self.row.text("gpu")

    @cached_property
    def tower_s(self) -> float:
        """Seconds of the tower's kernels for a request."""
        tower, setup = published_tower(self.row.text("model")), self.question.serving
        if tower is None or not self.sees:
            return 0.0
        times = EncoderTimes(tower, setup.model, setup.cluster, setup.pool, setup.engine)
        return times.seconds(1, tower.shape(PICTURE)) - self.shipped_s

    @property
    def shipped_s(self) -> float:
        """The engine's host time of a picture."""
        return self.question.serving.engine.picture_s.value

    @property
    def beyond_s(self) -> float:
        """Measured seconds of a request in which streams wait, beyond those predicted for text and tower."""
        batch, share = self.question.batch, self.question.output / self.question.batch
        measured = batch / self.row.need("out_tok_s") - 1e-3 * self.row.need("itl_ms_p50")
        predicted = batch / self.text["out_tok_s"] - 1e-3 * self.text["itl_ms_p50"]
        return share * (measured - predicted) - self.tower_s

    def columns(self, request_s: float) -> dict[str, float]:
        """Predicted columns where each request delays all streams by some seconds more than text does."""
        rate = self.text["out_tok_s"]
        slower = 1.0 / (1.0 + request_s * rate / self.question.output)
        return {
            **self.text,
            "out_tok_s": rate * slower,
            "j_per_output_token": self.text["j_per_output_token"] / slower,
        }


def chats(path: Path) -> Iterator[Chat]:
    """Rows of chats, with pictures where a published tower is known; unpredicted rows are left out."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for number, values in enumerate(csv.DictReader(lines)):
            row = MeasuredRow(values, f"{path.name}: row {number + 2}")
            includes_tower = row.text("task") == TASKS[1] or published_tower(row.text("model")) is not None
            if row.text("task") not in TASKS or not includes_tower or not row.text("engine_version"):
                continue
            try:
                question = read_case("energy", row, path.name).question
            except SkippedRow:
                continue
            if row.number("itl_ms_p50") and row.number("out_tok_s"):
                yield Chat(row, question, predictions("energy", [question])[0])


def host_seconds(rows: list[Chat], left_out: str = "") -> float:
    """The host's time of a picture: the median of models, less that of text."""
    groups: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for chat in rows:
        if chat.device == FITTED_ON and chat.model != left_out:
            groups[chat.sees, chat.model].append(chat.beyond_s)
    medians = [(sees, float(np.median(values))) for (sees, _), values in groups.items()]
    seeing, text = (np.median([s for sees, s in medians if sees is kind]) for kind in (True, False))
    return max(float(seeing - text), 0.0)


@command
def main(file: Path) -> None:
    """Print errors by device and model."""
    rows = list(chats(file))
    seeing = sum(chat.sees for chat in rows)
    print(f"host's time of a picture: {1e3 * host_seconds(rows):.1f} ms ({seeing} rows)")
    errors = Errors()
    for chat in filter(lambda chat: chat.sees, rows):
        ways = {
            "as text": 0.0,
            "with the tower": chat.tower_s,
            "and the host, left out": chat.tower_s + host_seconds(rows, chat.model),
            "and the host, shipped": chat.tower_s + chat.shipped_s,
        }
        for how, seconds in ways.items():
            columns = chat.columns(seconds)
            for name, column in COLUMNS.items():
                measured = chat.row.number(column)
                if measured and (name != "median gap" or how == "as text"):
                    groups = chat.device, f"{chat.device}: {chat.model}"
                    errors.add(
                        columns[column], measured, *(f"{name:<18} {word:<42} {how}" for word in groups)
                    )
    print("\n".join(errors.lines(order=lambda group: group[:61])))
