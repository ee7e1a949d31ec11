"""One HTML file that opens from disk: the page's own code, the chart library and the data.

The page may load nothing and run nothing but the two scripts that are in it: its policy names them
by their hashes. Data is never code: it lies in elements that no browser runs, and the script puts
it into the page as text only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from memtrace.analysis.history import HistoryReport
from memtrace.analysis.overview import shorten
from memtrace.render.page.data import page_data
from memtrace.render.page.packing import Packer
from memtrace.render.units import clean

MOST_BYTES = 10_000_000
# In the order in which they build on each other; all share one scope.
_SCRIPTS = (
    "units", "unpack", "history", "rows", "palette", "lifetimes", "stack", "marks", "chart",
    "tooltip", "listing", "table", "source", "heading", "keys", "drawing", "app", "controls",
)  # fmt: skip
_STYLES = ("page", "tables", "print")
_MARKER = re.compile(r"<!--memtrace:(\w+)-->")


def build_page(report: HistoryReport, most_bytes: int = MOST_BYTES) -> bytes:
    """The file's contents.

    Of a recording whose lifetimes would take the page beyond ``most_bytes``, those of the window
    alone are in it, and of the rest the totals at chosen moments.
    """
    page = _fill(report)
    if len(page) > most_bytes:
        page = _fill(shorten(report))
    return page


def _fill(report: HistoryReport) -> bytes:
    packer = Packer()
    data = page_data(report, packer)
    script = "\n".join(
        ["(() => {", '"use strict";', *(_read(f"static/{name}.js") for name in _SCRIPTS), "})();"]
    )
    chart = _read("uplot/uPlot.iife.min.js")
    notice = _read("uplot/LICENSE").replace("*/", "* /")
    chart = f"/*!\n{notice}*/\n{chart}"
    style = "\n".join(
        [_read("uplot/uPlot.min.css"), *(_read(f"static/{name}.css") for name in _STYLES)]
    )
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(chart)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    labels = " and ".join(history.report.label for history in report.histories)
    parts = {
        "policy": policy,
        "title": _escape(f"{clean(labels)} · memtrace"),
        "style": style,
        "chart": chart,
        "script": script,
        "data": _json(data),
        "columns": packer.pack(),
    }
    # In one pass: what is put in is never looked at again.
    page = _MARKER.sub(lambda found: parts[found[1]], _read("static/page.html"))
    return page.encode("utf-8")


@cache
def _read(name: str) -> str:
    return files("memtrace.render.page").joinpath(name).read_text("utf-8")


def _json(value: Any) -> str:
    """JSON that cannot end the element it lies in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
