"""The command line: the only place that prints, exits or reads arguments.

Commands import what they need when they run, so that ``memtrace --help`` starts at once.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import NoReturn

import typer

from memtrace.cli import diff, explain, export, peak, predict, record, report, show, trim, view
from memtrace.errors import Interrupted, MemtraceError
from memtrace.render.units import clean

app = typer.Typer(
    name="memtrace",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Says which compiled symbols the gap in peak memory between two PyTorch runs consists of, "
    "to the byte.",
)
record.register(app)
peak.register(app)
diff.register(app)
show.register(app)
explain.register(app)
predict.register(app)
export.register(app)
report.register(app)
view.register(app)
trim.register(app)


def main() -> None:
    """Runs the app; an error in the input or the output is one line on stderr and exit code 1."""
    recording = sys.argv[1:2] == ["record"]  # then the streams and settings are the script's
    if not recording:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal or file that cannot hold a character gets an escape, not a traceback.
                stream.reconfigure(errors="backslashreplace")
        # numpy's linear algebra, which nothing here uses, would start a thread for each core: half
        # of the time that numpy takes to load.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        try:
            app()
        finally:
            if not recording and sys.stdout is not None:
                sys.stdout.flush()
    except Interrupted:
        # Python then ends as it does for a script: by the signal, once all is cleaned up.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt from None
    except MemtraceError as error:
        print(f"memtrace: {clean(str(error))}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader (head, a pager) has what it wanted; Python would complain at exit otherwise.
        _drop_output()
        sys.exit(141)
    except OSError as error:
        if error.filename is not None:
            _fail(error)
        print(f"memtrace: the output cannot be written ({error.strerror})", file=sys.stderr)
        _drop_output()
        sys.exit(1)
    except Exception as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    """A fault of memtrace's own: one line that a report can be made from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    print(
        f"memtrace: internal error, please report it: {clean(what)} "
        f"({os.path.basename(place.filename)}:{place.lineno})",
        file=sys.stderr,
    )
    sys.exit(1)


def _drop_output() -> None:
    """What is still to be written goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
