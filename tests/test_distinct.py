"""Numbering of distinct rows, against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtrace.distinct import _scatter, distinct_values, group_rows, number_rows
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


@given(st.lists(VALUES), st.sampled_from([np.int64, np.uint64]))
def test_equal_values_stand_together_in_order(values, kind):
    values = [abs(value) for value in values]
    rows = group_rows(np.array(values, dtype=kind)).tolist()
    assert sorted(rows) == list(range(len(values)))
    groups = {}
    for row in rows:
        groups.setdefault(values[row], []).append(row)
    assert [row for group in groups.values() for row in group] == rows
    assert all(group == sorted(group) for group in groups.values())


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1))
def test_repetitions_are_aligned_each_as_if_it_were_alone(lists):
    model, *others = (np.array(one, dtype=np.int64) for one in lists)
    aligner = Aligner(model)
    for other in [model, *others, *others]:
        pairs = zip(*(column.tolist() for column in aligner.pairs(other)), strict=True)
        assert list(pairs) == align(model.tolist(), other.tolist())


@given(st.lists(VALUES))
def test_distinct_values_are_in_order(values):
    assert distinct_values(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


def test_values_that_no_multiplier_keeps_apart():
    values = np.arange(3000, dtype=np.int64) ** 3 % 1_000_003 << 40
    assert _scatter(values) is None
    kinds, kind = number_rows(values)
    assert len(kinds) == len(set(values.tolist()))
    assert [kinds[k][0] for k in kind.tolist()] == values.tolist()
    assert np.array_equal(values[group_rows(values)], np.sort(values))
