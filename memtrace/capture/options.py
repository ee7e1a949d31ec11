"""What a recording is asked to do, and what it came to."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memtrace.errors import MemtraceError

DeviceChoice = Literal["auto", "cuda", "cpu"]
StackChoice = Literal["python", "all"]
# An entry of the history is a few hundred bytes to a few KB (its stack): a million is the most that
# a capture is read back from in comfort, and over a hundred iterations of a large model.
MAX_EVENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """See ``memtrace record --help``. ``max_events`` bounds the history, the oldest go first."""

    output: Path
    device: DeviceChoice = "auto"
    stacks: StackChoice = "python"
    max_events: int = MAX_EVENTS
    check_driver: bool = False
    force: bool = False
    window: str | None = None  # 'last:3'; None: all

    def check(self) -> None:
        """Raise MemtraceError for what could only fail after the script has run for an hour."""
        if self.device not in ("auto", "cuda", "cpu"):
            raise MemtraceError(f"device {self.device!r}: choose auto, cuda or cpu")
        if self.stacks not in ("python", "all"):
            raise MemtraceError(f"stacks {self.stacks!r}: choose python or all")
        if self.max_events < 1:
            raise MemtraceError(f"max_events {self.max_events}: give at least 1")
        if self.window is not None:
            from memtrace.capture.window import count_of

            count_of(self.window)
        path = self.output
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = None
        except OSError as error:
            raise MemtraceError(
                f"{path}: cannot be written ({error.strerror}); give another name"
            ) from None
        if mode is not None and stat.S_ISDIR(mode):
            raise MemtraceError(f"{path}: is a directory; give the name of a file")
        if mode is not None and not stat.S_ISREG(mode):
            raise MemtraceError(f"{path}: is not a regular file; give another name")
        if mode is not None and not self.force:
            raise MemtraceError(f"{path}: exists; choose another name or overwrite with --force")
        # As write_atomically() will, which cannot be imported yet: it brings numpy.
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise MemtraceError(f"{path}: directory {folder} does not exist; create it first")
        try:
            # By a file that is made: root may write where nobody can.
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise MemtraceError(
                f"{path}: no file can be made in {folder} ({error.strerror}); choose another"
            ) from None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a recording.

    ``exit_code`` is the script's; ``interrupted`` says that KeyboardInterrupt ended it. ``path`` is
    None where no capture could be written; then ``error`` says why. ``peak_bytes`` is the driver's
    allocated peak (CUDA) or the greatest sum of the recorded allocations (CPU), None where nothing
    was recorded.
    """

    exit_code: int
    path: Path | None = None
    error: str | None = None
    device: str = ""
    events: int = 0
    iterations: int = 0
    peak_bytes: int | None = None
    compilers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
