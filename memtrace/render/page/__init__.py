"""A report as one page: the timeline, the live set at any moment, the gap's rows, the source."""

from __future__ import annotations

import os
from typing import BinaryIO

from memtrace.analysis.history import HistoryReport
from memtrace.render.page.document import build_page
from memtrace.snapshot import write_atomically

__all__ = ["build_page", "write_page"]


def write_page(path: str | os.PathLike[str], report: HistoryReport, force: bool = False) -> int:
    """Writes the page whole or not at all; returns its size. An existing file needs ``force``."""
    page = build_page(report)

    def write(stream: BinaryIO) -> None:
        stream.write(page)

    write_atomically(path, write, force)
    return len(page)
