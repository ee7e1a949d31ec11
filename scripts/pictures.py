"""Makes the README's pictures of the page from the shipped captures.

    python scripts/pictures.py [FOLDER]

Writes report.png (two runs, as the page opens) and report-source.png (a row chosen, zoomed in, with
its lines of source) into docs/ or FOLDER. Needs Chromium and its driver, and selenium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memtrace.analysis import open_subject  # noqa: E402
from memtrace.analysis.history import report_history  # noqa: E402
from memtrace.render.page import write_page  # noqa: E402
from memtrace.snapshot import read  # noqa: E402
from tests.page.browser import Browser, missing  # noqa: E402

CAPTURES = ("qwen2-L4-eager-torchcompile.pkl.gz", "qwen2-L4-eager-nvfuser.pkl.gz")
# Around B's peak: 60 events of its forward pass's end and its backward pass's start.
_ZOOM = """
const { app } = memtrace;
const x = app.histories[1].position(app.histories[1].peak, "event");
app.zoom([x - 30, x + 30], null);
"""


def take_overview(browser: Browser, page: Path, folder: Path) -> None:
    browser.open(page, width=1360, height=940)
    browser.screenshot(folder / "report.png")


def take_source(browser: Browser, page: Path, folder: Path) -> None:
    browser.open(page, width=1360, height=1290)
    browser.js(_ZOOM)
    browser.click("#rows tbody tr")
    browser.away()
    browser.js("document.activeElement.blur(); scrollTo(0, 0)")
    browser.frame()
    browser.screenshot(folder / "report-source.png")


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs"
    if lacking := missing():
        sys.exit(f"pictures: {lacking}")
    folder.mkdir(parents=True, exist_ok=True)
    subjects = [open_subject(read(str(ROOT / "samples" / name))) for name in CAPTURES]
    browser = Browser()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            page = Path(temporary) / "report.html"
            write_page(page, report_history(subjects))
            take_overview(browser, page, folder)
            take_source(browser, page, folder)
    finally:
        browser.close()
    for path in sorted(folder.glob("report*.png")):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
