"""``memtrace view --perfetto``: one file for one page, once."""

import io
import os
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from memtrace.cli.loopback import ORIGIN, serve_once
from memtrace.errors import MemtraceError
from tests.cli.test_commands import run_process

NATIVE = str(Path(__file__).parent.parent / "data/allocators/native.pkl.gz")
CONTENT = b"trace" * 100_000


class Serving:
    """serve_once in a thread, on a port of the system's choice."""

    def __init__(self, name="a.pftrace", patience=20.0, content=CONTENT):
        self.said, self.error = [], None
        self._content = content
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(name, patience))
        self._thread.start()
        assert self._ready.wait(10)
        self.base = (
            next(line for line in self.said if ORIGIN in line).split("url=")[1].split("&")[0]
        )

    def _serve(self, name, patience):
        try:
            serve_once(name, io.BytesIO(self._content), self._say, port=0, patience=patience)
        except MemtraceError as error:
            self.error = str(error)

    def _say(self, line):
        self.said.append(line)
        self._ready.set()

    def get(self, path="", method="GET", **headers):
        """(status, body, headers) of a request to the file's address and ``path``."""
        request = urllib.request.Request(
            self.base + path, headers={"Origin": ORIGIN, **headers}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, b"", dict(error.headers)

    def ended(self):
        self._thread.join(10)
        return not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _no_browser(monkeypatch):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def test_the_file_is_given_to_the_page_once_and_then_it_ends():
    serving = Serving()
    assert serving.base.startswith("http://127.0.0.1:")
    assert "there is no browser here" in serving.said[0]
    assert "ssh -L" in serving.said[1]
    status, body, headers = serving.get()
    assert (status, body) == (200, CONTENT)
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert serving.ended()
    assert serving.error is None


def test_nothing_else_is_given():
    serving = Serving()
    assert serving.get("x")[0] == 404
    assert serving.get("/../a.pkl")[0] == 404
    assert serving.get(method="POST")[0] == 501
    assert serving.get(Origin="https://evil.example")[0] == 403
    assert serving.get(Host="evil.example:9001")[0] == 404
    assert serving.get()[0] == 200
    assert serving.ended()


def test_a_page_that_went_away_can_ask_again():
    large = bytes(30_000_000)  # more than sockets hold: it cannot be sent to nobody
    serving = Serving(content=large)
    host, port = serving.base.removeprefix("http://").split("/")[0].split(":")
    with socket.create_connection((host, int(port)), timeout=5) as early:
        early.sendall(b"GET /a.pftrace HTTP/1.0\r\nHost: 127.0.0.1:1\r\n\r\n")
        early.recv(1000)
    assert serving.get()[:2] == (200, large)
    assert serving.ended()


def test_nobody_comes():
    serving = Serving(patience=0.2)
    assert serving.ended()
    assert "nobody fetched the trace" in serving.error
    assert "run it again" in serving.error


@pytest.mark.parametrize(
    ("name", "address"),
    [("a b/../é.pftrace", "a-b-..-.pftrace"), ("...", "trace"), ("x" * 500, "x" * 100)],
)
def test_names_are_fit_for_an_address(name, address):
    serving = Serving(name)
    assert serving.base.rpartition("/")[2] == address
    assert serving.get()[0] == 200
    assert serving.ended()


def test_a_port_in_use_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MemtraceError, match=rf"port {port} .* \(Address already in use\)"):
            serve_once("a", io.BytesIO(b""), print, port=port)


def test_without_a_browser_it_says_where_the_page_is(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "BROWSER": "false"}
    done = run_process("view", NATIVE, env=environment)
    assert done.returncode == 0
    (page,) = tmp_path.glob("memtrace-*/report.html")
    assert f"no browser was found here; the page is {page}" in done.stderr
    assert page.read_text().startswith("<!doctype html>")


def test_three_captures_are_too_many():
    done = run_process("view", NATIVE, NATIVE, NATIVE)
    assert done.returncode == 2
    assert "one capture, or two" in done.stderr
