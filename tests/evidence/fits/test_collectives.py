"""Published collectives beside predicted ones."""

from collections import Counter
from pathlib import Path

import numpy as np

from evidence.fits import collectives
from hwmodels.cluster import clusters

FILE = Path(collectives.__file__).with_name("published_collectives.csv")


def test_all_reduces_over_efa_v2_follow_those_of_p5_nodes():
    skipped: Counter[str] = Counter()
    rows = list(collectives.read_rows([FILE], skipped))
    assert not skipped and len(rows) == clusters.get("aws-p5").network.constants.rows
    errors = [collectives.predict(row, clusters.get(row.cluster)) / row.seconds - 1 for row in rows]
    assert np.median(np.abs(errors)) < 0.1
    assert abs(np.mean(errors)) < 0.03
