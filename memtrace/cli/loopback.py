"""Hands one file to one web page, once.

ui.perfetto.dev takes a trace from a server on this machine, if that listens on port 9001 (its
content security policy names it) and allows the page's origin. This does what Perfetto's own script
``open_trace_in_ui`` does, and no more: one name, GET only, on the loopback, until it was fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, BinaryIO
from urllib.parse import quote

from memtrace.errors import MemtraceError

ORIGIN = "https://ui.perfetto.dev"
PORT = 9001
# Opens the recording's group of tracks: a command that the page takes from links.
_OPENED = "&startupCommands=" + quote(
    '[{"id":"dev.perfetto.ExpandTracksByRegex","args":["^memtrace "]}]', safe=""
)
_PATIENCE = 600.0  # seconds for a person to open the page
_REQUEST = 5.0  # … and for a connection that was made to go on; browsers make idle ones


class _Server(HTTPServer):
    """``fetched`` says that the whole of ``content`` was sent."""

    allow_reuse_address = True  # one that ended a moment ago does not keep the port

    def __init__(self, port: int, name: str, content: BinaryIO, size: int) -> None:
        self.name, self.content, self.size = name, content, size
        self.fetched = False
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            raise
        # A page that went away in the middle can ask again.


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST

    def do_GET(self) -> None:
        asked_by = self.headers.get("Origin", ORIGIN)
        # A name that someone else's DNS points here is not us.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if self.path != f"/{self.server.name}" or host not in ("127.0.0.1", "localhost"):
            self.send_error(404)
            return
        if asked_by != ORIGIN:
            self.send_error(403)
            return
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", ORIGIN)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.size))
        self.end_headers()
        self.server.content.seek(0)
        shutil.copyfileobj(self.server.content, self.wfile)
        self.server.fetched = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing of the server's talk is for the person at the terminal."""


def serve_once(
    name: str,
    content: BinaryIO,
    say: Callable[[str], None],
    *,
    port: int = PORT,
    patience: float = _PATIENCE,
) -> None:
    """Offers ``content`` to ui.perfetto.dev, opens the page, and returns when it was fetched.

    MemtraceError where the port is taken, or nobody fetched it within ``patience`` seconds.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-")[:100] or "trace"
    size = content.seek(0, os.SEEK_END)
    try:
        server = _Server(port, name, content, size)
    except OSError as error:
        raise MemtraceError(
            f"port {port} of this machine cannot be had ({error.strerror}); the page takes a trace "
            "from no other: end what uses it (another memtrace view?) and try again"
        ) from None
    with server:
        url = f"{ORIGIN}/#!/?url=http://127.0.0.1:{server.server_port}/{name}{_OPENED}"
        if _has_browser() and webbrowser.open_new_tab(url):
            say(f"opening {url}")
        else:
            say(f"there is no browser here; open {url} in one on this machine")
            say(
                f"from another machine: ssh -L {port}:127.0.0.1:{port} to this one, and open it "
                "there; or write a file with memtrace export --perfetto and drop it on the page"
            )
        end = time.monotonic() + patience
        while not server.fetched:
            server.timeout = end - time.monotonic()
            if server.timeout <= 0:
                raise MemtraceError(
                    f"nobody fetched the trace in {patience:.0f} seconds; run it again, or write "
                    "a file with memtrace export --perfetto and drop it on the page"
                )
            server.handle_request()


def _has_browser() -> bool:
    """Whether a browser with a window can be expected: one for text would take the terminal."""
    if sys.platform in ("win32", "darwin") or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
