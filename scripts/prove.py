"""Proof of what-if: changes made as Thunder transforms, predicted against measured peaks.

    python scripts/prove.py OUT [--layers 2] [--only NAMES] [--alone] [--small]

For each model: recorded without the change; the tensors chosen and the new peak predicted from that
capture alone; compiled with the transform and recorded again. OUT gets results.jsonl, the captures
and a log of each run. Runs are processes of their own, side by side on one GPU as far as its memory
goes (``--alone``: one after the other, for true times); what fails is tried once more, as nvFuser
fails now and then while it compiles. ``--only`` takes the workloads that begin so. ``--small`` is a
small run; without a GPU a stand-in takes nvFuser's place (scripts/stand_in.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from prove_predict import predict

from memtrace.analysis.peak import Subject, open_subject, report_peak
from memtrace.snapshot import read

CASE = Path(__file__).parent / "prove_case.py"
TRIES = 2
GPU_GB = 125  # of an H200's 140, for all runs at once
# What a run takes from the GPU at most: its peak and what the allocator keeps.
NEEDS_GB = {
    "qwen2-eager": 16, "qwen2-sdpa": 13, "qwen2-hoist": 15, "llama": 12, "gpt2": 9, "vit": 3,
}  # fmt: skip
Choose = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Case:
    """A change of a workload. ``pick`` chooses among the capture's tensors (see tensors_of)."""

    workload: str
    title: str
    kind: str
    pick: Choose = lambda tensor: False
    dtype: str = ""


def attention(dtype: str) -> Choose:
    """The attention matrices that are saved in a dtype."""
    return lambda t: (
        t["saved"] and t["dtype"] == dtype and len(t["shape"]) == 4
        and t["shape"][-1] == t["shape"][-2] and t["fused"]
    )  # fmt: skip


def widest(t: Mapping[str, Any]) -> bool:
    """What a fusion makes in the MLP's inner width: the activation, its product with the gate."""
    return bool(t["saved"] and t["fused"] and t["shape"][-1] == t["inner"])


def normed(t: Mapping[str, Any]) -> bool:
    """What a fusion makes in the model's width for a linear layer: the results of norms."""
    return bool(t["saved"] and t["fused"] and t["multiplied"] and t["shape"][-1] == t["width"])


def hoisted(t: Mapping[str, Any]) -> bool:
    """What the hoisted fusion makes."""
    return bool(t["pass"] == "backward" and t["symbol"] == "nvFusion0")


CASES = (
    Case("qwen2-eager", "recompute the softmax's bf16 copy", "Recompute", attention("bfloat16")),
    Case("qwen2-eager", "hold the softmax in bf16", "HoldNarrow", attention("float32"), "bfloat16"),
    Case("qwen2-eager", "recompute the MLP's product", "Recompute", widest),
    Case("qwen2-sdpa", "recompute the MLP's product", "Recompute", widest),
    Case("qwen2-hoist", "keep shapes out of nvFusions", "KeepShapesOut"),
    Case("qwen2-hoist", "move the hoisted shapes to their readers", "MoveToConsumer", hoisted),
    Case("llama", "recompute the MLP's product", "Recompute", widest),
    Case("llama", "recompute the norms", "Recompute", normed),
    Case("gpt2", "recompute the activation", "Recompute", widest),
    Case("gpt2", "recompute the norms", "Recompute", normed),
    Case("vit", "recompute the activation", "Recompute", widest),
    Case("vit", "recompute the norms", "Recompute", normed),
)


def tensors_of(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tensors of the largest Thunder program: ``name``, ``dtype``, ``shape``, the ``symbol``
    and ``pass`` that make it, whether it is ``fused``, ``saved``, ``multiplied`` with a weight,
    and the model's widths."""
    module = max(meta["thunder"], key=lambda m: sum(len(t["symbols"]) for t in m["traces"]))
    traces = {t["phase"]: t for t in module["traces"]}
    backward = traces["backward"]["symbols"]
    saved = {o["name"] for s in backward if s["name"] == "unpack_sequence" for o in s["outputs"]}
    linear = [
        o["shape"][-1]
        for s in traces["forward"]["symbols"] if s["name"] == "linear"
        for o in s["outputs"]
    ]  # fmt: skip
    read = {
        a for s in traces["forward"]["symbols"] if s["name"] == "linear" for a in s["args"]
    }  # fmt: skip
    widths = sorted({w for w in linear if linear.count(w) > 1})
    found = []
    for phase in ("forward", "backward"):
        for symbol in traces[phase]["symbols"]:
            if symbol["name"] == "unpack_sequence":
                continue
            for output in symbol["outputs"]:
                if output["shape"]:
                    found.append(
                        {
                            **output, "symbol": symbol["name"], "pass": phase,
                            "fused": symbol["name"].startswith("nvFusion"),
                            "saved": output["name"] in saved,
                            "multiplied": output["name"] in read, "inner": widths[-1],
                            "width": max(widths, key=linear.count),
                        }
                    )  # fmt: skip
    return found


class Runs:
    """Starts runs, as many as the GPU's memory holds."""

    def __init__(self, options: argparse.Namespace, gradients: Path) -> None:
        self._options, self._gradients = options, gradients
        self._free = 1 if options.alone else GPU_GB
        self._changed = threading.Condition()
        self._began = time.perf_counter()

    def run(self, name: str, workload: str, change: Mapping[str, Any]) -> dict[str, Any] | None:
        """What prove_case.py says of a run; None if it failed twice."""
        options = self._options
        command = [
            sys.executable, str(CASE), workload, "--name", name, "--out", str(options.out),
            "--gradients", str(self._gradients), "--change", json.dumps(change),
            "--layers", str(options.layers), *(["--small"] if options.small else []),
        ]  # fmt: skip
        needs = 1 if options.alone else GPU_GB // 2 if options.small else NEEDS_GB[workload]
        for attempt in range(TRIES):
            with self._changed:
                self._changed.wait_for(lambda: self._free >= needs)
                self._free -= needs
            self.say(f"{name}: starts")
            log = options.out / f"{name}.{attempt}.log"
            with log.open("wb") as file:
                code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
            with self._changed:
                self._free += needs
                self._changed.notify_all()
            self.say(f"{name}: exit {code}")
            if code == 0:
                return json.loads((options.out / f"{name}.json").read_text())
        return None

    def keep(self, result: Mapping[str, Any]) -> None:
        """Writes a result at once: what is done counts, whatever becomes of the rest."""
        with self._changed, (self._options.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")

    def say(self, text: str) -> None:
        print(f"{time.perf_counter() - self._began:6.0f} s  {text}", flush=True)


def compare(a: Path, b: Path) -> dict[str, float]:
    """How far the gradients of two runs are apart, relative: all of them together (the norm of the
    difference), and the parameter that differs most. Where a gradient is all rounding (that of a
    key's bias, which softmax ignores) a thousandth of the largest norm is the measure.
    """
    with np.load(a) as one, np.load(b) as other:
        names = sorted(one.files)
        assert names == sorted(other.files)
        norms = {n: float(np.linalg.norm(one[n])) for n in names}
        apart = {n: float(np.linalg.norm(one[n] - other[n])) for n in names}
    floor = max(norms.values()) / 1000
    total = float(np.linalg.norm(list(norms.values())))
    return {
        "gradients_apart": float(np.linalg.norm(list(apart.values()))) / total,
        "worst_parameter_apart": max(apart[n] / max(norms[n], floor) for n in names),
    }


def step_ms(subject: Subject) -> float | None:
    """The median step without the profiler: on the GPU, else on the host."""
    steps = report_peak(subject).steps
    spread = steps.gpu or steps.wall
    return None if spread is None else spread.median_ns / 1e6


def prove(runs: Runs, options: argparse.Namespace, gradients: Path, workload: str) -> list[Any]:
    """The results of all changes of one workload."""
    base = runs.run(workload, workload, {})
    if base is None:
        return [{"workload": workload, "failed": f"see {workload}.*.log"}]
    recording = read(str(options.out / f"{workload}.pkl.gz"))
    baseline = open_subject(recording)
    assert recording.meta is not None
    tensors = tensors_of(recording.meta)
    before = step_ms(baseline)

    def one(number: int, case: Case) -> dict[str, Any]:
        names = [t["name"] for t in tensors if case.pick(t)]
        name = f"{workload}-{number}"
        result: dict[str, Any] = {"workload": workload, "change": case.title, "capture": name}
        change = {"kind": case.kind, "names": names, "dtype": case.dtype}
        ran = runs.run(name, workload, change)
        if ran is None:
            return {**result, "failed": f"see {name}.*.log"}
        peak, predicted = predict(baseline, ran["done"])
        subject = open_subject(read(str(options.out / f"{name}.pkl.gz")))
        measured = report_peak(subject).peak_bytes
        losses = zip(base["losses"], ran["losses"], strict=True)
        return {
            **result,
            "tensors": [one["tensor"] for one in ran["done"]],
            "left": ran["left"],
            "baseline_bytes": peak,
            "predicted_bytes": predicted.bytes,
            "measured_bytes": measured,
            "error_percent": (predicted.bytes / measured - 1) * 100,
            "step_ms": [before, step_ms(subject)],
            "loss_apart": max(abs(a - b) / abs(a) for a, b in losses),
            **compare(gradients / f"{workload}.npz", gradients / f"{name}.npz"),
            "device": ran["device"],
        }

    def guarded(number: int, case: Case) -> dict[str, Any]:
        try:
            result = one(number, case)
        except Exception as error:  # the other cases are still worth having
            result = {"workload": workload, "change": case.title, "failed": repr(error)}
        runs.keep(result)
        return result

    cases = [case for case in CASES if case.workload == workload]
    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(guarded, range(1, len(cases) + 1), cases))


def show(results: list[dict[str, Any]], alone: bool) -> None:
    """The table."""
    print(f"\n{'change':<56} {'peak':>9} {'predicted':>10} {'measured':>10} {'error':>8}"
          f" {'step':>16}  results apart")  # fmt: skip
    for r in results:
        title = f"{r['workload']}: {r.get('change', 'recording')}"
        if "failed" in r:
            print(f"{title:<56} failed: {r['failed']}")
            continue
        before, after = r["step_ms"]
        step = "" if before is None or after is None else f"{before:.1f} → {after:.1f} ms"
        sizes = [r["baseline_bytes"], r["predicted_bytes"], r["measured_bytes"]]
        print(f"{title:<56} " + " ".join(f"{size / 1e6:9.1f}" for size in sizes)
              + f" {r['error_percent']:+7.2f}% {step:>16}{'' if alone else '~'}"
              f"  loss {r['loss_apart']:.1e}, gradients {r['gradients_apart']:.1e}")  # fmt: skip
    print("MB" + ("" if alone else "; ~ times with other runs on the GPU"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    (options.out / "results.jsonl").write_text("")
    wanted = tuple(options.only.split(","))
    workloads = [w for w in NEEDS_GB if w.startswith(wanted)]
    with tempfile.TemporaryDirectory() as folder:
        gradients = Path(folder)
        runs = Runs(options, gradients)
        with ThreadPoolExecutor(len(workloads)) as pool:
            proofs = pool.map(lambda w: prove(runs, options, gradients, w), workloads)
            results = [result for found in proofs for result in found]
    show(results, options.alone)
    if any("failed" in result for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
