"""What is worth knowing about a run: versions, machine, program. Flat, JSON-like values only."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memtrace.snapshot.format import TensorInfo


_TENSORS = 64  # of a call's arguments: enough to tell two calls apart


def environment_facts() -> dict[str, Any]:
    """Versions and settings of this process; nothing is imported for it."""
    facts: dict[str, Any] = {
        "tool": f"memtrace {_version_of('torch-memtrace')}".strip(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "thunder": _module_version("thunder", "lightning-thunder"),
        "nvfuser": _nvfuser(),
        "transformers": _module_version("transformers", "transformers"),
        "triton": _module_version("triton", "triton"),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts |= {
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda or ""),
            "git_torch": str(getattr(torch.version, "git_version", "") or ""),
            "threads": int(torch.get_num_threads()),
            "default_dtype": _dtype(torch.get_default_dtype()),
            "matmul_precision": str(torch.get_float32_matmul_precision()),
            "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        }
    return facts


def cuda_facts() -> dict[str, Any]:
    """About the GPU in use; only where CUDA is initialised already."""
    import torch

    device = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "gpu_count": torch.cuda.device_count(),
        "capability": f"{properties.major}.{properties.minor}",
        "allocator_backend": str(torch.cuda.get_allocator_backend()),
        "cublas_workspace_bytes": cublas_workspace(properties.major),
        "cublaslt_workspace_bytes": cublaslt_workspace(),
        "cudnn": _cudnn(),
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        "bf16_reduced_precision": bool(
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
    }


def cublas_workspace(major: int) -> int:
    """Bytes of the workspace that torch gives each cuBLAS handle and stream, for good.

    As parseChosenWorkspaceSize in ATen/cuda/CublasHandlePool.cpp: CUBLAS_WORKSPACE_CONFIG is pairs
    ":KiB:count"; without it 32 MiB on compute capability 9 and 10, else about 8 MiB.
    """
    pairs = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if pairs:
        return sum(int(size) * 1024 * int(count) for size, count in pairs)
    return 4096 * 8 * 1024 if major in (9, 10) else 4096 * 1024 * 2 + 16 * 1024 * 8


def cublaslt_workspace() -> int:
    """Bytes of the workspace that torch gives cuBLASLt on each stream, for good.

    CUBLASLT_WORKSPACE_SIZE is in KiB; without it 1 MiB was seen (torch 2.11 on an H200).
    """
    text = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return int(text) * 1024 if text.isdecimal() else 1 << 20


def allocator_conf() -> str:
    """The allocator's settings as the environment gives them."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")
    parts = [os.environ.get(n, "") for n in names[:2]]
    if os.environ.get(names[2]):
        parts.append("no_caching")
    return ",".join(p for p in parts if p)


def describe_inputs(args: Iterable[Any], kwargs: dict[str, Any]) -> list[TensorInfo]:
    """The tensors among a call's arguments, by name or position; containers one level deep."""
    import torch

    from memtrace.snapshot.format import TensorInfo

    found: list[TensorInfo] = []

    def add(name: str, value: Any, deep: bool) -> None:
        if len(found) >= _TENSORS:
            return
        if isinstance(value, torch.Tensor):
            found.append(
                TensorInfo(
                    name=name,
                    shape=[int(s) for s in value.shape],
                    dtype=_dtype(value.dtype),
                    device=str(value.device),
                )
            )
        elif deep and isinstance(value, dict):
            for key, item in list(value.items())[:_TENSORS]:
                add(f"{name}.{key}", item, False)
        elif deep and isinstance(value, (list, tuple)):
            for k, item in enumerate(value[:_TENSORS]):
                add(f"{name}.{k}", item, False)

    for k, value in enumerate(args):
        add(str(k), value, True)
    for key, value in kwargs.items():
        add(str(key), value, True)
    return found


def git_commit(folder: str) -> str:
    """The commit of the script's folder, '+dirty' where modified; '' where there is none."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        if not commit:
            return ""
        return commit + ("+dirty" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: str, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=10,
        check=False,
    )
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def _cudnn() -> int:
    """As torch.backends.cudnn.version() has it, which would load the library where the script did
    not: some 100 MB, and an abort where those are not to be had."""
    import torch

    version = getattr(torch.backends.cudnn, "__cudnn_version", None)
    return int(version or 0)


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _module_version(module: str, distribution: str) -> str:
    if module not in sys.modules:
        return ""
    version = getattr(sys.modules[module], "__version__", None)
    return str(version or _version_of(distribution))


def _nvfuser() -> str:
    for name in ("nvfuser_direct", "nvfuser"):
        module = sys.modules.get(name)
        if module is not None:
            version = getattr(module, "version", None)
            try:
                return str(version() if callable(version) else module.__version__)
            except Exception:
                return "unknown"
    return ""


def _version_of(distribution: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def cpu_name() -> tuple[str, int]:
    """(model name, bytes of memory) of this machine."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as stream:
            for line in stream:
                if line.startswith("model name"):
                    name = line.split(":", 1)[1].strip()
                    break
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        total = -1
    return name, total
