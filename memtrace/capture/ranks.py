"""Runs of several processes under torchrun: one capture a rank, and the launcher itself.

torchrun tells each process who it is by environment variables (torch.distributed.elastic's
``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``TORCHELASTIC_RESTART_COUNT``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from memtrace.errors import MemtraceError

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
_PLACE = "{rank}"


class Rank(NamedTuple):
    """Which of ``world_size`` processes this is; ``local`` among those of its machine, -1 unknown.

    ``restart`` counts how often torchrun has begun anew.
    """

    rank: int
    world_size: int
    local: int
    restart: int


def find_rank(environment: Mapping[str, str] | None = None) -> Rank | None:
    """This process's rank; None where it is the only one."""
    told = os.environ if environment is None else environment

    def number(name: str) -> int:
        text = told.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1

    rank, world_size = number("RANK"), number("WORLD_SIZE")
    if not 0 <= rank < world_size or world_size < 2:
        return None
    return Rank(rank, world_size, number("LOCAL_RANK"), number("TORCHELASTIC_RESTART_COUNT"))


def name_output(path: Path, rank: Rank | None) -> Path:
    """The capture of this process alone: ``{rank}`` filled in, else 'run.rank1.pkl.gz'.

    After a restart 'run.rank1.restart1.pkl.gz': what the first attempt wrote stays.
    """
    number = "0" if rank is None else str(rank.rank)
    if rank is not None and rank.restart > 0:
        number += f".restart{rank.restart}"
    if _PLACE in path.name:
        return path.with_name(path.name.replace(_PLACE, number))
    if rank is None:
        return path
    stem, dot, endings = path.name.partition(".")
    if not stem:  # a hidden file
        return path.with_name(f"{path.name}.rank{number}")
    return path.with_name(f"{stem}.rank{number}{dot}{endings}")


def rank_facts(rank: Rank | None) -> dict[str, int]:
    """What a capture says of it."""
    if rank is None:
        return {}
    return {"rank": rank.rank, "world_size": rank.world_size, "local_rank": rank.local}


def is_launcher(target: str, *, module: bool) -> bool:
    """Whether what is to be run is torchrun, which computes nothing itself."""
    return target in _LAUNCHERS if module else os.path.basename(target) == "torchrun"


def launch(target: str, args: Sequence[str], record: Sequence[str], *, module: bool) -> NoReturn:
    """Become the launcher, whose processes run under ``memtrace record`` with options ``record``.

    MemtraceError where its arguments name no Python program.
    """
    command = launch_command(args, record)
    launcher = target if module else _LAUNCHERS[0]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(sys.executable, [sys.executable, "-m", launcher, *command])


def launch_command(args: Sequence[str], record: Sequence[str]) -> list[str]:
    """torchrun's arguments ``args`` with its program put behind ``-m memtrace record``."""
    from torch.distributed.run import get_args_parser

    known = get_args_parser().parse_args(list(args))
    program = [known.training_script, *known.training_script_args]
    options = list(args[: len(args) - len(program)])
    if known.no_python:
        raise MemtraceError("torchrun --no-python runs no Python script; record the script itself")
    if not known.module:
        options.append("-m")
        return [*options, "memtrace", "record", *record, *program]
    return [*options, "memtrace", "record", *record, "-m", *program]
