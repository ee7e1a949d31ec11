"""A Thunder program as a model: values, statements, whose memory is whose, and for how long."""

from memtrace.program.aliases import is_fusion, is_nvfusion, is_shape_only
from memtrace.program.capture import read_programs
from memtrace.program.fusions import is_only_shape
from memtrace.program.lifetimes import Lifetime, find_lifetimes
from memtrace.program.model import Operation, Program, Statement, Storage, Value
from memtrace.program.moves import (
    can_move,
    can_recompute,
    is_tied,
    kept_longer,
    move_range,
    writes,
)
from memtrace.program.prediction import Prediction, Step, predict
from memtrace.program.text import read_text

__all__ = [
    "Lifetime",
    "Operation",
    "Prediction",
    "Program",
    "Statement",
    "Step",
    "Storage",
    "Value",
    "can_move",
    "can_recompute",
    "find_lifetimes",
    "is_fusion",
    "is_nvfusion",
    "is_only_shape",
    "is_shape_only",
    "is_tied",
    "kept_longer",
    "move_range",
    "predict",
    "read_programs",
    "read_text",
    "writes",
]
