"""Pages to look at: written once, opened in one browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memtrace.analysis import open_subject
from memtrace.analysis.history import report_history
from memtrace.render.page import build_page
from memtrace.snapshot import read
from tests.page.browser import Browser, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if lacking := missing():
        pytest.skip(lacking)
    one = Browser()
    yield one
    one.close()


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the page of some captures, each page once."""
    folder = tmp_path_factory.mktemp("pages")
    written: dict[object, Path] = {}

    def write_one(*captures: Path, window: str | None = None, most_bytes: int = 10_000_000) -> Path:
        key = (captures, window, most_bytes)
        if key not in written:
            report = report_history([open_subject(read(str(c)), window) for c in captures])
            written[key] = folder / f"{len(written)}.html"
            written[key].write_bytes(build_page(report, most_bytes))
        return written[key]

    return write_one
