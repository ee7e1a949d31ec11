"""Tries what can go wrong while a script is recorded, and says what happened.

    python scripts/faults.py [--only PATTERN] [--cpu] [--moments N] [--jobs N]

Each program of scripts/fault_cases.py runs bare and under ``memtrace record``. Exit code, output
and errors must be the same; there must be a whole capture that memtrace reads, or one clear line;
no other file may be left. Those that need a GPU are tried where there is one. Then scripts are
killed at random moments, ``--moments`` of each kind, and captures are cut off.

Prints a table; the exit code is 1 where anything is not as expected.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fault_cases import FAULTS, Fault, train

from memtrace.analysis import open_subject, report_peak
from memtrace.errors import MemtraceError
from memtrace.snapshot import read

_PATIENCE = 400  # seconds, of a run that takes a few on a machine of its own
ROOT = Path(__file__).resolve().parents[1]
PATH = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
# What differs between two runs of one program; and what the profiler's library says where there is
# no GPU, or no place for its trace.
_VARIES = re.compile(
    r"ERROR:.*gpuGetDeviceCount.*|ERROR:.*output_json.*|0x[0-9a-f]+|\[W\d.*|pid=?\s*\d+|Process-\d+|\d+\.\d+s"
)


@dataclass(frozen=True)
class End:
    """How a process ended; ``code`` is negative for a signal."""

    code: int
    out: str
    err: str
    files: frozenset[str]

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("memtrace: ")]

    @property
    def others(self) -> str:
        """The errors without memtrace's lines, nor what is never the same."""
        kept = [line for line in self.err.splitlines() if not line.startswith("memtrace: ")]
        return _VARIES.sub("", "\n".join(kept)).strip()


@dataclass(frozen=True)
class Tried:
    """One row of the table."""

    name: str
    expected: str
    happened: str
    fine: bool


def run(fault: Fault, folder: Path, recorded: bool) -> End:
    """Run the program in ``folder``, bare or recorded."""
    target = folder / fault.script
    target.parent.mkdir(parents=True, exist_ok=True)
    if fault.program:
        target.write_text(fault.program)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": PATH, "TMPDIR": str(temporary)}
    environment |= fault.environment
    if fault.before:
        subprocess.run(fault.before, shell=True, cwd=folder, check=False)
    start = files_in(folder)
    program = ["-m", fault.script.removesuffix(".py").replace("/", ".")] if fault.module else [
        os.path.dirname(fault.script) if fault.script.endswith("__main__.py") else fault.script
    ]  # fmt: skip
    command = [sys.executable, *fault.python]
    if recorded and not fault.own:
        command += ["-m", "memtrace", "record", "-o", fault.output, *fault.options]
        command += program if not fault.module else ["-m", program[1]]
    else:
        command += program
    limits = fault.limits if recorded else ""
    process = subprocess.Popen(
        ["bash", "-c", f"{limits} exec {shlex.join(command)} {fault.closed}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env=environment,
    )
    first = ""
    if fault.signal:
        assert process.stdout is not None
        for line in process.stdout:
            first += line
            if line.startswith("ready"):
                break
        time.sleep(0.2)
        process.send_signal(fault.signal)
    try:
        out, err = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += "\nit hung"
    return End(process.returncode, first + out, err, frozenset(files_in(folder) - start))


def files_in(folder: Path) -> set[str]:
    """All files below a folder, but for what Python itself keeps."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)) for p in found if "__pycache__" not in p.parts}


def look_at(path: Path) -> str:
    """A capture in words. Raises MemtraceError where it is not whole."""
    subject = open_subject(read(path))
    report = report_peak(subject)
    iterations = len((subject.recording.meta or {})["iterations"])
    checked = {True: "equal to the driver", False: "DIFFERS from the driver", None: ""}
    parts = [f"whole, {subject.replay.n_events} events, {iterations} iterations"]
    if report.complete or report.reconciled is not False:
        parts.append(checked[report.reconciled])
    else:
        parts.append("incomplete, and says so")
    return ", ".join(part for part in parts if part)


def notes_of(path: Path) -> list[str]:
    meta = read(path).meta or {}
    return [str(note) for note in meta["facts"]["notes"]]


def attempt(fault: Fault) -> Tried:
    """Run a program bare and recorded, and compare."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        try:
            bare = None if fault.own or "never runs" in fault.program else run(fault, folder, False)
            for file in files_in(folder) - {fault.script}:
                if fault.before and not file.startswith("tmp/"):
                    continue
                (folder / file).unlink()
            end = run(fault, folder, True)
            happened, said = _result(fault, folder, end, faults)
        finally:
            for mounted in ("tiny",):
                if os.path.ismount(folder / mounted):
                    subprocess.run(["umount", str(folder / mounted)], check=False)
        if bare is not None:
            _compare(fault, bare, end, happened, faults)
        elif fault.own and not end.out.rstrip().endswith("OK"):
            faults.append(f"left behind: {end.out[-300:]} {end.others[-500:]}")
        strays = {f for f in end.files if f not in (bare.files if bare else ())}
        strays -= {fault.output, "other.pkl"}
        if strays:
            faults.append(f"files left: {', '.join(sorted(strays))}")
        if fault.says and not any(re.search(fault.says, line) for line in said):
            faults.append(f"nothing says {fault.says!r} in {said}")
        if any(
            "Traceback" in line
            or ("a bug in memtrace" in line and fault.says != "planted")
            or "internal" in line
            for line in end.lines
        ):
            faults.append(f"internal error: {end.lines}")
    code = f"exit {end.code}" if end.code >= 0 else signal.Signals(-end.code).name
    expected = {
        "whole": "whole capture", "none": "one clear line", "either": "a capture or a line",
    }[fault.left]  # fmt: skip
    if fault.signal == signal.SIGKILL or "SIGKILL" in fault.name:
        expected = "nothing"
    text = f"{code}; {happened}"
    return Tried(fault.name, expected, "; ".join([text, *faults]), not faults)


def _result(fault: Fault, folder: Path, end: End, faults: list[str]) -> tuple[str, list[str]]:
    """What is there in words, and all that memtrace said; appends to ``faults``."""
    path = folder / fault.output
    said = list(end.lines)
    others = os.path.isfile(path) and path.read_bytes() in (b"precious", b"theirs")
    if fault.left == "none" and others:
        pass  # as it was, or as somebody else wrote it
    elif fault.output in end.files:
        try:
            happened = look_at(path)
        except (MemtraceError, KeyError, ValueError) as error:
            faults.append("half a file")
            return f"NOT READABLE: {error}", said
        notes = notes_of(path)
        if fault.left == "none":
            faults.append("there should be none")
        return happened + "".join(f"; note: {n}" for n in notes), [*said, *notes]
    if fault.left == "whole":
        faults.append(f"no capture: {end.err[-800:]}")
    killed = end.code == -signal.SIGKILL
    if len(said) != 1 and not killed and "2>" not in fault.closed:
        faults.append(f"{len(said)} lines: {said} {end.err[-500:]}")
    return " / ".join(said) or "nothing", said


def _compare(fault: Fault, bare: End, end: End, happened: str, faults: list[str]) -> None:
    """Whether the recorded program did what the bare one did."""
    missing = not happened.startswith("whole") and end.code == 1 and bare.code == 0
    if end.code != bare.code and not missing:
        faults.append(f"exit code {end.code}, bare {bare.code}")
    if end.out != bare.out:
        faults.append(f"stdout {end.out[-300:]!r}, bare {bare.out[-300:]!r}")
    if fault.same_errors and end.others != bare.others:
        faults.append(f"stderr {end.others[-600:]!r}, bare {bare.others[-600:]!r}")


def kill_at_random(number: int, count: int, seed: int) -> Tried:
    """Send a signal at ``count`` moments between the start of a recording and its end."""
    chance = random.Random(seed)
    whole = nothing = 0
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        fault = Fault("kill", train(steps=40, end="sys.stdout.flush()"))
        begin = time.monotonic()
        run(fault, folder, True)
        lasted = time.monotonic() - begin
        stray = 0
        for k in range(count):
            (folder / "out.pkl").unlink(missing_ok=True)
            command = [sys.executable, "-m", "memtrace", "record", "-o", "out.pkl", "script.py"]
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": PATH, "TMPDIR": str(folder / "tmp")},
            )  # fmt: skip
            assert process.stdout is not None
            if k % 2:  # while the capture is put together and written
                process.stdout.readline()
                time.sleep(chance.uniform(0, 1.2))
            else:
                time.sleep(chance.uniform(0, lasted))
            process.send_signal(number)
            _, err = process.communicate(timeout=_PATIENCE)
            if process.returncode not in (0, -number):
                faults.append(f"exit {process.returncode}: {err[-400:]}")
            if "Traceback" in err and number != signal.SIGINT:
                faults.append(err[-400:])
            if (folder / "out.pkl").exists():
                try:
                    look_at(folder / "out.pkl")
                    whole += 1
                except MemtraceError as error:
                    faults.append(str(error))
            else:
                nothing += 1
            left = files_in(folder) - {"script.py", "out.pkl"}
            stray += len(left)
            if left and number != signal.SIGKILL:
                faults.append(f"files left: {left}")
        if stray:
            (folder / "out.pkl").unlink(missing_ok=True)
            run(fault, folder, True)
            if left := files_in(folder) - {"script.py", "out.pkl"}:
                faults.append(f"the next record leaves {left}")
    happened = f"{whole} whole, {nothing} without a capture, 0 half"
    if number == signal.SIGKILL:
        happened += f", {stray} temporary files, removed by the next record"
    return Tried(
        f"{signal.Signals(number).name} at {count} random moments", "whole or nothing",
        "; ".join([happened, *faults]), not faults,
    )  # fmt: skip


def cut_off(count: int) -> Tried:
    """Captures as a power cut would leave them on a file system without order."""
    faults: list[str] = []
    chance = random.Random(5)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        for suffix in (".pkl", ".pkl.gz", ".pkl.zst"):
            source = folder / f"a{suffix}"
            fault = Fault("cut", train(), output=source.name)
            run(fault, folder, True)
            raw = source.read_bytes()
            for k in range(count):
                length = chance.randrange(len(raw))
                cut = folder / f"cut{suffix}"
                # Cut off, or as long as it should be with nothing in it.
                cut.write_bytes(raw[:length] + (b"\0" * (len(raw) - length) if k % 2 else b""))
                done = subprocess.run(
                    [sys.executable, "-m", "memtrace", "peak", str(cut)],
                    capture_output=True, text=True, check=False,
                    env={**os.environ, "PYTHONPATH": PATH},
                )  # fmt: skip
                lines = done.stderr.splitlines()
                if done.returncode != 1 or len(lines) != 1 or cut.name not in lines[0]:
                    faults.append(f"{length} of {len(raw)} {suffix}: {done.stderr[-300:]}")
    return Tried(
        f"{3 * count} captures cut off or zeroed from somewhere on",
        "one line, exit 1",
        "; ".join([f"{3 * count - len(faults)} times one line that names the file", *faults]),
        not faults,
    )


def print_row(row: Tried) -> bool:
    """Prints one; whether it was as expected."""
    mark = "OK " if row.fine else "NOT"
    print(f"{mark}  {row.name}  |  {row.expected}  |  {row.happened}", flush=True)
    return row.fine


def has_gpu() -> bool:
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose names match this")
    parser.add_argument("--cpu", action="store_true", help="as if there were no GPU")
    parser.add_argument("--moments", type=int, default=8, help="random moments for each signal")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    arguments = parser.parse_args()
    if arguments.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpu = has_gpu()
    tasks = [
        lambda fault=fault: attempt(fault)
        for fault in FAULTS
        if re.search(arguments.only, fault.name) and (gpu or not fault.cuda)
    ]
    if re.search(arguments.only, "random moments"):
        tasks += [
            lambda number=number: kill_at_random(number, arguments.moments, int(number))
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
        ]
        tasks.append(lambda: cut_off(arguments.moments))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        wrong = sum(not print_row(row) for row in pool.map(lambda task: task(), tasks))
    print(f"{len(tasks)} faults tried, {wrong} not as expected")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
