"""The page as a file: one piece, nothing in it that runs but its own scripts, columns exact."""

import base64
import hashlib
import json
import re
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from memtrace.analysis import open_subject
from memtrace.analysis.history import report_history
from memtrace.cli import app
from memtrace.render.page import build_page
from memtrace.render.page.packing import Packer
from memtrace.snapshot import read
from tests.page.captures import ALLOCATORS, hostile_capture

SMALL = str(ALLOCATORS / "native.pkl.gz")


def page_of(*paths, most_bytes=10_000_000):
    report = report_history([open_subject(read(path)) for path in paths])
    return build_page(report, most_bytes).decode("utf-8")


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])


def unpack(buffer, place):
    """As unpack.js reads a column."""
    length, width = place["length"], place["width"]
    planes = np.frombuffer(buffer, np.uint8, length * width, place["at"]).reshape(width, length)
    values = sum(planes[k].astype(np.int64) << (8 * k) for k in range(width))
    return np.cumsum(values) if place["rising"] else values


@given(st.lists(st.integers(0, (1 << 53) - 1)), st.lists(st.integers(0, 1 << 40)), st.text())
def test_columns_come_back_as_they_were(values, steps, text):
    packer = Packer()
    column, rising = np.array(values, np.int64), np.cumsum(np.array(steps, np.int64))
    places = packer.add(column), packer.add(rising, rising=True)
    words = packer.add_text(text.encode("utf-8", "replace").decode("utf-8"))
    buffer = zlib.decompress(base64.b64decode(packer.pack()))
    assert unpack(buffer, places[0]).tolist() == column.tolist()
    assert unpack(buffer, places[1]).tolist() == rising.tolist()
    raw = buffer[words["at"] : words["at"] + words["length"]]
    assert raw.decode("utf-8") == text.encode("utf-8", "replace").decode("utf-8")


def test_the_policy_allows_the_two_scripts_and_nothing_else():
    page = page_of(SMALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 2
    for text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"(?:src|href)=", page.split("<script", 1)[0])
    assert "Copyright (c) 2022 Leon Sorokin" in page  # the chart library's licence goes with it


def test_names_from_a_file_cannot_end_the_element_they_lie_in(tmp_path):
    page = page_of(str(hostile_capture(tmp_path)))
    assert len(re.findall(r"</script", page)) == 4
    assert "<img" not in page
    assert "\u202e" not in page
    texts = json.dumps(data_of(page), ensure_ascii=False)
    assert "</script><img src=x onerror=" in texts  # all there, as text
    assert "\\\\x202e" in texts


def test_the_data_is_that_of_the_peak():
    data = data_of(page_of(SMALL))
    found = CliRunner().invoke(app, ["peak", SMALL, "--json"])
    expected = json.loads(found.stdout)
    summary = data["runs"][0]["summary"]
    # What HolisticTraceAnalysis adds, where it is installed, is no figure of the page.
    assert summary.pop("gpu") == {**expected["gpu"], "hta": None}
    assert summary == {key: expected[key] for key in summary}
    assert sum(row["bytes"][0] for row in data["rows"]["symbol"]) == expected["peak_bytes"]
    assert data["gap"] is None


def test_what_does_not_fit_is_left_to_the_overview():
    whole, short = data_of(page_of(SMALL)), data_of(page_of(SMALL, most_bytes=10))
    assert whole["runs"][0]["overview"] is None
    overview = short["runs"][0]["overview"]
    assert overview["moments"]["length"] == whole["runs"][0]["events"] + 1  # it is short enough
    assert short["runs"][0]["born"]["length"] < whole["runs"][0]["born"]["length"]


def test_report_writes_one_file_and_keeps_what_is_there(tmp_path):
    target = tmp_path / "page.html"
    arguments = ["report", SMALL, SMALL, "-o", str(target)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert str(target) in done.stderr
    first = target.read_bytes()
    assert first.startswith(b"<!doctype html>")
    target.write_bytes(b"mine")
    again = CliRunner().invoke(app, arguments)
    assert "exists already" in str(again.exception)
    assert target.read_bytes() == b"mine"
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    assert target.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_more_than_two_captures_are_a_usage_error(tmp_path):
    target = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["report", SMALL, SMALL, SMALL, "-o", str(target)])
    assert done.exit_code == 2
    assert not target.exists()


def test_a_page_opens_in_the_browser_there_is(tmp_path, monkeypatch, capsys):
    from memtrace.cli import report

    opened = []
    monkeypatch.setattr(report.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(report.webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    report.open_report([SMALL])
    assert opened == [(tmp_path / "report.html").as_uri()]
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!doctype html>")


def test_without_a_browser_it_says_where_the_page_is(tmp_path, monkeypatch, capsys):
    from memtrace.cli import report

    monkeypatch.setattr(report.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(report.webbrowser, "open", lambda url: False)
    report.open_report([SMALL])
    said = capsys.readouterr().err
    assert "no browser" in said
    assert str(tmp_path / "report.html") in said


@pytest.mark.parametrize("name", ["native", "oom", "async", "graphs", "late"])
def test_pages_of_every_kind_of_recording_sum_up(name):
    path = str(ALLOCATORS / f"{name}.pkl.gz")
    data = data_of(page_of(path))
    for by in ("symbol", "category", "layer"):
        total = sum(row["bytes"][0] for row in data["rows"][by])
        assert total == data["runs"][0]["summary"]["peak_bytes"]
