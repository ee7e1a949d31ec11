"""Questions asked of named lifetimes: pure functions, no input or output."""

from memtrace.analysis.diff import DiffReport, report_diff
from memtrace.analysis.groups import Dimension, Groups, group_lifetimes
from memtrace.analysis.peak import PeakReport, Subject, open_subject, report_peak
from memtrace.analysis.rows import (
    Row,
    Side,
    fold_rows,
    folded_symbol,
    layer_pattern,
    limit_rows,
    series,
)
from memtrace.analysis.show import Shown, ShowReport, report_show
from memtrace.analysis.tensors import describe

__all__ = [
    "DiffReport",
    "Dimension",
    "Groups",
    "PeakReport",
    "Row",
    "ShowReport",
    "Shown",
    "Side",
    "Subject",
    "describe",
    "fold_rows",
    "folded_symbol",
    "group_lifetimes",
    "layer_pattern",
    "limit_rows",
    "open_subject",
    "report_diff",
    "report_peak",
    "report_show",
    "series",
]
