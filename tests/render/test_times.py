"""Times as a person reads them."""

import io

import pytest
from rich.console import Console

from memtrace.analysis import Timing, report_diff, report_peak
from memtrace.analysis.compilations import Compilation
from memtrace.render.compilations import print_compilations
from memtrace.render.hta import Breakdown, StreamIdle
from memtrace.render.text import print_diff, print_peak
from memtrace.render.times import describe_kernels
from memtrace.render.units import format_range, format_time, format_time_delta
from tests.analysis.test_steps import event, run
from tests.analysis.test_timing import timed


def printed(render, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(console)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (27_512, "27.5 µs"),
        (999_949, "999.9 µs"),
        (999_999, "1.00 ms"),
        (159_312_000, "159.3 ms"),
        (1_234_000_000, "1.23 s"),
        (9_996_000_000, "10.0 s"),
        (-5_000_000, "−5.00 ms"),
    ],
)
def test_times_become_text(ns, text):
    assert format_time(ns) == text


def test_ranges_and_differences_become_text():
    assert format_time_delta(158_700_000) == "+158.7 ms"
    assert format_time_delta(-1) == "−1 ns"
    assert format_time_delta(0) == "0 ns"
    assert format_range(186_900_000, 188_100_000) == "186.9–188.1 ms"
    assert format_range(950_000, 1_200_000) == "950.0 µs – 1.20 ms"


def two():
    a = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10_000), (2, 20_000, 21_000)])
    b = timed([("alloc", 0x1000, 900, 0, 1)], [(1, 0, 159_000), (3, 160_000, 160_500)])
    return report_diff(a, b)


def rows_of(text):
    """The words of each row of a table, up to the symbol."""
    lines = [line for line in text.splitlines() if "thunder/" in line]
    return {line.split()[-1]: line.split("thunder/")[0].split() for line in lines}


def test_diff_has_both_deltas_in_one_row():
    text = printed(lambda c: print_diff(c, two()))
    assert rows_of(text)["line1"] == ["700", "B", "900", "B", "+200", "B", "+149.0", "µs"]
    # What holds nothing is not told one by one.
    assert "<2 symbols that hold nothing then, but ran: see --sort time>" in text
    assert "gap: +200 bytes, +148.5 µs of GPU time" in text


def test_diff_by_time_has_times_and_kernels_first():
    text = printed(lambda c: print_diff(c, two(), sort="time"))
    rows = rows_of(text)
    assert list(rows) == ["line1", "GONE", "NEW"]
    assert rows["line1"] == ["10.0", "µs", "159.0", "µs", "+149.0", "µs", "+200", "B"]
    assert rows["GONE"] == ["1.00", "µs", "·", "−1.00", "µs", "0", "B"]
    assert "k1, launched at thunder.computation_1:1" in text
    assert "busy 11.0 µs, idle 10.0 µs → busy 159.5 µs, idle 1.00 µs" in text
    assert "11.0 µs  159.5 µs  +148.5 µs" in text


def test_every_row_is_there_when_open():
    text = printed(lambda c: print_diff(c, two(), expand=True))
    assert len(rows_of(text)) == 3
    assert "<2 symbols" not in text


def test_peak_has_a_column_of_times():
    one = timed([("alloc", 0x1000, 700, 0, 1)], [(1, 0, 10_000), (2, 20_000, 21_000)])
    text = printed(lambda c: print_peak(c, report_peak(one)))
    assert rows_of(text)["line1"] == ["700", "B", "100.0%", "10.0", "µs", "1"]
    assert "GPU of the profiled step: busy 11.0 µs, idle 10.0 µs" in text


def test_without_times_there_is_no_column():
    one = run({"wall_ns": 5})
    text = printed(lambda c: print_peak(c, report_peak(one)))
    assert "GPU" not in text
    assert "step on the host 5 ns, of 1 step" in text


def test_a_step_that_changed_and_one_that_may_have_not():
    fast, slow, near = (
        run(*({"wall_ns": ns, "gpu_ns": ns + k} for k in range(5)))
        for ns in (153_600, 187_700, 187_702)
    )
    text = printed(lambda c: print_diff(c, report_diff(slow, fast)))
    assert "step 187.7 µs (187.7–187.7 µs) → 153.6 µs (153.6–153.6 µs), −18.2%" in text
    text = printed(lambda c: print_diff(c, report_diff(slow, near)))
    assert "~ +0.0% (the ranges overlap)" in text


def report(gpu="NVIDIA H200", busy=187_000_000):
    one = timed([], [(1, 0, busy)], facts={"device": "cuda", "gpu": gpu})
    return report_peak(one)


SLOW = Timing(
    159_000_000,
    1,
    "nvf::nvfuser_inner_persistent_f0_c1_r0_g2(nvf::Tensor<nvf::__bfloat, 3, 3>)",
    159_000_000,
    ("thunder.computation_25:91",),
    moved=3_758_096_384,
    operations=("t1 = prims.exp(t0)", "t2 = prims.exp(t1)", "t3 = torch.sum(t2)"),
)


def test_a_slow_kernel_stands_out():
    assert describe_kernels(SLOW, report()) == [
        "nvf::nvfuser_inner_persistent_f0_c1_r0_g2, launched at thunder.computation_25:91",
        "fuses 3 operations: exp, sum",
        "must move 3.76 GB: 23.6 GB/s, 0.5% of the card's 4.80 TB/s",
    ]


def test_what_takes_no_notable_time_is_not_described():
    assert describe_kernels(SLOW, report(busy=159_000_000 * 101)) == []
    assert describe_kernels(Timing(), report()) == []


def test_an_impossible_share_has_its_reason():
    (*_, text) = describe_kernels(
        Timing(10_000_000, 2, "gather", 8_000_000, moved=10**12), report(busy=20_000_000)
    )
    assert text == (
        "must move 1.00 TB: 100.0 TB/s, more than the card's 4.80 TB/s: it reads a part of its "
        "inputs only, or from the cache"
    )


def test_an_unknown_card_has_no_share():
    (*_, text) = describe_kernels(SLOW, report(gpu="Voodoo"))
    assert text == "must move 3.76 GB: 23.6 GB/s"


@pytest.mark.parametrize(
    "name", ["</script>", "\x1b[31mred", "\u202eevil", "x" * 10_000, "void", "(", "<<<", "a>(b)"]
)
def test_hostile_kernel_names_stay_on_their_line(name):
    hostile = Timing(10, 1, name, 10, (name,), operations=(name, f"t = {name}(x)"))
    text = "\n".join(describe_kernels(hostile, report(busy=10)))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_idle_time_is_split_by_stream():
    one = timed([], [(1, 0, 10)])
    waits = (StreamIdle(7, 3_340_000, 411_400, 0), StreamIdle(20, 0, 0, 5))
    for streams, expected in (
        (waits[:1], "idle, as HolisticTraceAnalysis splits it: host-bound 3.34 ms, launch-bound "),
        (waits, "on stream 20 other 5 ns"),
    ):
        breakdown = Breakdown(10, 5, 1, 4, {}, streams)
        text = printed(lambda c, b=breakdown: print_peak(c, report_peak(one), breakdown=b), 200)
        assert expected in text


def compiled(*events_):
    return report_peak(run({}, compilations=list(events_)))


def test_reasons_are_told_and_differences_come_first():
    again = event("recompile", where="model.py:10", reason="size mismatch\n  at index 0")
    broken = event("graph break", where="model.py:3", reason="print")
    a = compiled(event("compile", duration=2_000_000_000), broken)
    b = compiled(event("compile", duration=1_000_000_000), broken, again, again)
    lines = printed(lambda c: print_compilations(c, [a, b])).splitlines()
    assert lines == [
        "  A: 1 compilation (2.00 s), 1 graph break",
        "  B: 1 compilation (1.00 s), 2 recompilations, 1 graph break",
        "  only B: 2 × recompile forward at model.py:10: size mismatch at index 0",
        "  both: graph break forward at model.py:3: print",
    ]


def test_what_both_have_is_not_what_one_alone_has_however_often():
    broken, again = event("graph break", reason="print"), event("recompile", reason="size")
    lines = printed(
        lambda c: print_compilations(
            c, [compiled(broken, broken, broken, again), compiled(broken, again, again)]
        )
    ).splitlines()
    assert lines[2:] == [
        "  not as often: 3 → 1 × graph break forward: print",
        "  not as often: 1 → 2 × recompile forward: size",
    ]


def test_what_has_a_reason_is_told_first():
    silent = [event("recompile", name=f"f{k} (backward)") for k in range(3)]
    text = printed(
        lambda c: print_compilations(c, [compiled(*silent, event("recompile", reason="size"))])
    )
    assert text.splitlines()[1] == "  recompile forward: size"


def test_runs_that_only_compile_once_say_nothing():
    assert printed(lambda c: print_compilations(c, [compiled(event("compile"))])) == ""
    assert printed(lambda c: print_compilations(c, [compiled(), compiled()])) == ""


def test_many_and_long_reasons_are_cut():
    reasons = [event("split", name="", reason=f"{k}" + "x" * 1000) for k in range(9)]
    text = printed(lambda c: print_compilations(c, [compiled(*reasons)]), width=2000)
    assert "  6 more, see --json" in text
    assert max(map(len, text.splitlines())) < 300


def test_hostile_reasons_stay_on_their_line():
    bad = Compilation("split\x1b[2J", "\u202e", "</script>", "a\nb\x1b]0;x\x07", 1, 5, (-1,))
    one = compiled(event("split"))
    object.__setattr__(one, "compilations", (bad,))
    text = printed(lambda c: print_compilations(c, [one]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 2
