"""HolisticTraceAnalysis's figures of the plain trace are memtrace's own (the extra ``hta``)."""

import logging
import os
from collections import Counter

import pytest

from memtrace.analysis.timing import measure_busy
from memtrace.render.hta import break_down, is_installed
from memtrace.snapshot import read
from tests.analysis.test_timing import timed
from tests.test_samples import SAMPLES

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs the hta extra")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_its_totals_are_ours_to_the_nanosecond(path):
    one = read(str(path))
    found, busy = break_down(one), measure_busy(one)
    assert (found.busy, found.span, found.idle) == (busy.busy_ns, busy.span_ns, busy.idle_ns)
    assert found.compute + found.other == busy.busy_ns
    kernels = one.meta["profile"]["kernels"]
    sums = Counter()
    for name, ns in zip(kernels["name"], kernels["duration_ns"], strict=True):
        sums[name] += ns
    assert found.kernels == sums
    assert [wait.stream for wait in found.waits] == sorted(set(kernels["stream"]))


def test_overlapping_streams_are_counted_once():
    """Kernel k runs on stream k % 3."""
    one = timed([], [(1, 1000, 4000), (2, 2000, 5000), (3, 9000, 9500)]).recording
    found = break_down(one)
    assert (found.busy, found.idle) == (4500, 4000)
    assert len(found.waits) == 3


def test_nothing_is_left_behind(capfd):
    before = dict(os.environ)
    break_down(timed([], [(1, 1000, 4000), (2, 5000, 6000)]).recording)
    assert dict(os.environ) == before
    assert logging.root.manager.disable == logging.NOTSET
    assert capfd.readouterr() == ("", "")
