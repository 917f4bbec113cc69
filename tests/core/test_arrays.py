"""Sets of arrays agree with NumPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.arrays import distinct


@given(st.lists(st.one_of(st.integers(-4, 4), st.floats(allow_nan=False)), max_size=12))
def test_distinct_values_are_numpys(values):
    for array in (np.array(values), np.array(values, dtype=float).reshape(-1, 1)):
        assert distinct(array).tolist() == np.unique(array).tolist()
