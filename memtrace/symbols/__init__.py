"""Says which symbol each lifetime belongs to."""

from memtrace.symbols.attribution import Attribution, attribute, name_request
from memtrace.symbols.lives import Life, Line, read_life
from memtrace.symbols.table import (
    BEFORE_RECORDING,
    BLOCK_SLACK,
    UNATTRIBUTED,
    Naming,
    Symbol,
)

__all__ = [
    "BEFORE_RECORDING",
    "BLOCK_SLACK",
    "UNATTRIBUTED",
    "Attribution",
    "Life",
    "Line",
    "Naming",
    "Symbol",
    "attribute",
    "name_request",
    "read_life",
]
