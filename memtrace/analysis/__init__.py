"""Questions asked of named lifetimes: pure functions, no input or output."""

from memtrace.analysis.compilations import Compilation, without
from memtrace.analysis.diff import DiffReport, report_diff
from memtrace.analysis.groups import Dimension, Groups, group_lifetimes
from memtrace.analysis.oom import Oom
from memtrace.analysis.peak import (
    PeakReport,
    Subject,
    open_subject,
    report_peak,
    usual_moment,
)
from memtrace.analysis.roofline import (
    Bandwidth,
    Throughput,
    card_bandwidth,
    measure_throughput,
)
from memtrace.analysis.rows import (
    Measure,
    Row,
    Side,
    fold_rows,
    folded_symbol,
    layer_pattern,
    limit_rows,
    series,
    sort_rows,
)
from memtrace.analysis.show import Shown, ShowReport, report_show
from memtrace.analysis.steps import Spread, Steps
from memtrace.analysis.tensors import describe
from memtrace.analysis.timed import GpuTime
from memtrace.analysis.timing import Timing
from memtrace.analysis.trim import trim

__all__ = [
    "Bandwidth",
    "Compilation",
    "DiffReport",
    "Dimension",
    "GpuTime",
    "Groups",
    "Measure",
    "Oom",
    "PeakReport",
    "Row",
    "ShowReport",
    "Shown",
    "Side",
    "Spread",
    "Steps",
    "Subject",
    "Throughput",
    "Timing",
    "card_bandwidth",
    "describe",
    "fold_rows",
    "folded_symbol",
    "group_lifetimes",
    "layer_pattern",
    "limit_rows",
    "measure_throughput",
    "open_subject",
    "report_diff",
    "report_peak",
    "report_show",
    "series",
    "sort_rows",
    "trim",
    "usual_moment",
    "without",
]
