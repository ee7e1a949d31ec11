"""What a person reads at the terminal."""

import io

from rich.console import Console

from memtrace.analysis import open_subject, report_diff, report_peak
from memtrace.render.text import print_diff, print_peak
from memtrace.render.units import clean, format_bytes, format_delta, format_exact
from tests.builders import events, recording, stack_table


def printed(render, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(console)
    return console.file.getvalue()


def fusions(*sizes):
    """A recording whose lines 1, 2, … of one trace hold ``sizes``."""
    stacks = stack_table(*[[("thunder.computation_1", k + 1, "f")] for k in range(len(sizes))])
    rows = [("alloc", 0x1000 * (k + 1), size, 0, k + 1) for k, size in enumerate(sizes) if size]
    return open_subject(recording(events(*rows), stacks=stacks))


def test_bytes_become_text():
    assert format_bytes(939_524_096) == "939.5 MB"
    assert format_bytes(2_818_572_288) == "2.82 GB"
    assert format_bytes(999_999) == "1.0 MB"
    assert format_bytes(512) == "512 B"
    assert format_delta(-939_524_096) == "−939.5 MB"
    assert format_delta(0) == "0 B"
    assert format_exact(-1234, signed=True) == "−1,234 bytes"


def test_peak_table():
    text = printed(lambda c: print_peak(c, report_peak(fusions(700, 100, 100))))
    lines = text.splitlines()
    row = next(line for line in lines if "line1" in line)
    assert row.split()[:5] == ["700", "B", "77.8%", "1", "thunder/forward"]
    assert any("line2, 3 · 2 ×" in line and "22.2%" in line for line in lines)
    assert "peak: 900 bytes" in lines[-1]
    assert max(map(len, lines)) <= 80


def test_expand_opens_folded_rows():
    text = printed(lambda c: print_peak(c, report_peak(fusions(100, 100)), expand=True))
    assert "line1\n" in text
    assert "line2\n" in text
    assert "×" not in text


def test_diff_table():
    report = report_diff(fusions(700, 100), fusions(0, 150, 900))
    text = printed(lambda c: print_diff(c, report))
    order = [
        line.split("forward line")[1].strip()
        for line in text.splitlines()
        if "forward line" in line
    ]
    assert order == ["3  NEW", "1  GONE", "2"]
    assert "gap: +250 bytes" in text


def test_hostile_names_cannot_drive_the_terminal():
    stacks = stack_table([("/x/\x1b[2J\u202eevil.py", 1, "[red]a\x1b]0;title\x07")])
    one = recording(events(("alloc", 0x1000, 5, 0, 1)), stacks=stacks, path="\x1b[31mx.pkl")
    text = printed(lambda c: print_peak(c, report_peak(open_subject(one))))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]" in text  # markup is text, not colour
    assert clean("a\x1b\n\u202e") == "a\\x1b\\x0a\\x202e"
