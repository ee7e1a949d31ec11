"""Measures pages: how long one takes to write, how large it is, how soon it can be used.

    python scripts/bench_page.py CAPTURE [CANDIDATE]

Usable means drawn and answering: from the start of navigation to the first chart, and from there
until a pointer's move has its tooltip. Needs Chromium and its driver, and selenium. A million
events: ``python scripts/enlarge.py samples/qwen2-L4-eager-torchcompile.pkl.gz 1000000 big.pkl``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memtrace.analysis import open_subject  # noqa: E402
from memtrace.analysis.history import report_history  # noqa: E402
from memtrace.render.page import write_page  # noqa: E402
from memtrace.snapshot import read  # noqa: E402
from tests.page.browser import Browser, missing  # noqa: E402

_LOADS = 5
# Zooming out to the whole recording, until it is drawn.
_WHOLE = "const t = performance.now(); memtrace.app.resetView(true); return performance.now() - t"


def main() -> None:
    if not sys.argv[1:]:
        sys.exit(__doc__)
    if lacking := missing():
        sys.exit(f"bench_page: {lacking}")
    began = time.perf_counter()
    recordings = [read(path) for path in sys.argv[1:]]
    been_read = time.perf_counter()
    report = report_history([open_subject(recording) for recording in recordings])
    named = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        size = write_page(page, report)
        written = time.perf_counter()
        events = " and ".join(f"{history.n_events:,}" for history in report.histories)
        print(f"{events} events: read {been_read - began:.1f} s, ", end="")
        print(
            f"replayed and named {named - been_read:.1f} s, written {written - named:.1f} s, ",
            end="",
        )
        print(f"{size / 1e6:.2f} MB")
        browser = Browser()
        try:
            for load in range(_LOADS):
                measure(browser, page, load + 1)
        finally:
            browser.close()


def measure(browser: Browser, page: Path, load: int) -> None:
    browser.open(page)
    ready = browser.js("return performance.getEntriesByName('memtrace-ready')[0].startTime")
    began = time.perf_counter()
    browser.move(0, 0.5, 0.2)
    if browser.js("return document.querySelector('.tooltip').hidden"):
        sys.exit("bench_page: a pointer over the chart shows nothing")
    hover = 1000 * (time.perf_counter() - began)
    whole = browser.js(_WHOLE)
    print(f"load {load}: drawn after {ready:.0f} ms, hover answered {hover:.0f} ms later, ", end="")
    print(f"whole recording composed in {whole:.0f} ms")


if __name__ == "__main__":
    main()
