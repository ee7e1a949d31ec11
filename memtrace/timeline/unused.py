"""What the allocator holds and nobody uses, at one moment of a recording."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from memtrace.snapshot.columns import Action, Recording, Segment
from memtrace.timeline.replay import Replay, map_blocks

_SMALL_SEGMENT = 2 << 20  # segments, and pages of expandable ones, of the small pool


class Unused(NamedTuple):
    """A free block, or several with one owner: bytes, and who alone can be given it.

    ``small`` says that it is for requests of at most 1 MiB, ``private`` that it belongs to a CUDA
    graph or a torch.cuda.MemPool.
    """

    address: int
    size: int
    small: bool
    stream: int
    private: bool


def unused_blocks(recording: Recording, replay: Replay, moment: int) -> list[Unused] | None:
    """The free blocks after the first ``moment`` events; None where they are not known.

    From the segments at the end where nothing changed since, else by replaying the blocks. Then
    whether a pool is private is known of the segments that are still there at the end.
    """
    device = replay.device
    if device >= len(recording.events):
        return None
    events = recording.events[device]
    segments = [s for s in recording.segments if s.device == device]
    changed = bool((events.action[moment:] <= Action.SEGMENT_UNMAP).any())
    if segments and not changed:
        return [
            _unused(block.address, block.size, segment)
            for segment in segments
            for block in segment.blocks
            if not block.active
        ]
    blocks = map_blocks(recording, replay, moment)
    if blocks is None:
        return None
    owners = _segments_at(recording, device, moment)
    places = sorted(owners)
    found = []
    for address, size in sorted(blocks.items()):
        owner = owners[places[max(bisect_right(places, address) - 1, 0)]] if places else None
        if owner is None or not owner.address <= address < owner.address + owner.total_size:
            return None
        found.append(_unused(address, size, owner))
    return found


def _unused(address: int, size: int, segment: Segment) -> Unused:
    return Unused(
        address, size, segment.kind == "small", segment.stream, tuple(segment.pool) != (0, 0)
    )


def _segments_at(recording: Recording, device: int, moment: int) -> dict[int, Segment]:
    """What was taken from the device and not given back, by address, as far as the file tells."""
    events = recording.events[device]
    known = (*recording.segments, *(recording.start_segments or ()))
    found = {s.address: s for s in known if s.device == device}
    about = {s.address: s for s in found.values()}
    action = events.action[:moment]
    for k in np.flatnonzero((action > Action.FREE_COMPLETED) & (action <= Action.SEGMENT_UNMAP)):
        address, size = int(events.addr[k]), int(events.size[k])
        if action[k] in (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP):
            found.pop(address, None)
            continue
        kind = "small" if size <= _SMALL_SEGMENT else "large"
        mapped = bool(action[k] == Action.SEGMENT_MAP)
        made = Segment(device, address, size, int(events.stream[k]), kind, (0, 0), mapped, ())
        same = about.get(address)
        found[address] = same if same is not None and same.total_size >= size else made
    return found
