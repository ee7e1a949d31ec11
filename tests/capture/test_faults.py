"""The faults of scripts/faults.py that take tenths of a second each; the script tries them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.recording import environment

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from fault_cases import BLOCKS, FAULTS, Fault  # noqa: E402
from faults import attempt  # noqa: E402

sys.path.remove(str(SCRIPTS))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", [f for f in FAULTS if not f.torch], ids=lambda f: f.name)
def test_a_script_without_torch(fault: Fault) -> None:
    tried = attempt(fault)
    assert tried.fine, tried.happened


def test_blocks_that_record_themselves_leave_nothing_behind(tmp_path: Path) -> None:
    """All in one process, one after another: what one left would be there in the next."""
    pytest.importorskip("torch")
    begin, end = "before = state()\n", "\nafter = state()"
    setting = BLOCKS[0].program.split(begin)[0]
    parts = [setting]
    for k, block in enumerate(BLOCKS):
        body = block.program.split(begin)[1].split(end)[0]
        body = body.replace('"out.pkl"', f'"{k}.pkl"')
        check = f"after = state()\nassert after == before, ({block.name!r}, before, after)\n"
        parts.append(f"os.makedirs('gone', exist_ok=True)\n{begin}{body}\n{check}")
    parts.append("print('OK')\n")
    (tmp_path / "all.py").write_text("\n".join(parts))
    done = subprocess.run(
        [sys.executable, "all.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("OK\n"), done.stderr
    bugs = [line for line in done.stderr.splitlines() if "a bug in memtrace" in line]
    assert all("planted" in line for line in bugs), bugs
    assert {p.name for p in tmp_path.glob("*.pkl")} == {
        f"{k}.pkl" for k, block in enumerate(BLOCKS) if block.left == "whole"
    }
    assert not list(tmp_path.glob(".*"))
