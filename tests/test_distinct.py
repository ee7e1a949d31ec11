"""Numbering of distinct rows, against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtrace.distinct import number_rows
from memtrace.symbols.alignment import Aligner, align

# Near each other (counted) and far apart (sorted).
VALUES = st.integers(-1, 5) | st.integers(-1, 2**62)


@given(st.lists(st.tuples(VALUES, VALUES, VALUES)))
def test_rows_are_numbered_by_first_appearance(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    kinds, kind = number_rows(*columns)
    numbers = {}
    expected = [numbers.setdefault(row, len(numbers)) for row in rows]
    assert kinds == list(numbers)
    assert kind.tolist() == expected


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1))
def test_repetitions_are_aligned_each_as_if_it_were_alone(lists):
    model, *others = (np.array(one, dtype=np.int64) for one in lists)
    aligner = Aligner(model)
    for other in [model, *others, *others]:
        pairs = zip(*(column.tolist() for column in aligner.pairs(other)), strict=True)
        assert list(pairs) == align(model.tolist(), other.tolist())
