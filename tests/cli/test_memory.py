"""Memory that a command frees and takes again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
if sys.argv[1:]:
    from memtrace.cli.memory import keep_memory
    keep_memory()
for _ in range(10):
    b"x" * (40 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(*arguments: str) -> int:
    """How often a process was given a page while it made and dropped ten times 40 MB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="nothing happens without glibc")
def test_what_is_freed_is_taken_again() -> None:
    assert faults("kept") < faults() / 3
