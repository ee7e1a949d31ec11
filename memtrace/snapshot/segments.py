"""Segments and their blocks, in every form that torch has written them."""

from __future__ import annotations

from typing import Any

from memtrace.snapshot.columns import Block, Segment
from memtrace.snapshot.stacks import StackInterner
from memtrace.snapshot.validate import (
    MOST_ADDRESS,
    MOST_BYTES,
    MOST_SUM,
    UINT64,
    Fault,
    brief,
    integer,
    is_text,
)

MOST_DEVICES = 128  # torch's DeviceIndex has 8 bits, of which one is the sign
_SMALL = 2 << 20  # the allocator's kSmallBuffer: segments of the small pool have this size


def read_segments(segments: Any, place: str, stacks: StackInterner) -> tuple[Segment, ...]:
    """Torch's segment dicts, checked. Raises Fault."""
    if segments is None:
        return ()
    if type(segments) is not list:
        raise Fault.of(place, segments, "a list")
    seen: set[int] = set()
    out = []
    for k, segment in enumerate(segments):
        here = f"{place}[{k}]"
        if type(segment) is not dict:
            raise Fault.of(here, segment, "a dict")
        blocks = segment.get("blocks")
        if type(blocks) is not list:
            raise Fault.of(f"{here}.blocks", blocks, "a list", "blocks" in segment)
        # One list of blocks in many segments would make a small file large.
        if blocks and id(blocks) in seen:
            raise Fault(f"{here}.blocks is the same list as an earlier segment's")
        seen.add(id(blocks))
        out.append(_read_segment(segment, blocks, here, stacks))
    sizes = sum(s.total_size for s in out), sum(b.requested for s in out for b in s.blocks)
    if max(sizes) > MOST_SUM:
        raise Fault(f"the sizes in {place} sum to more than 64 bits hold")
    return tuple(out)


def _read_segment(
    segment: dict[str, Any], blocks: list[Any], place: str, stacks: StackInterner
) -> Segment:
    address = _field(segment, "address", place, high=UINT64)
    total = _field(segment, "total_size", place)
    if total > MOST_BYTES:
        raise Fault(f"{place}.total_size is {total}, more than any memory has")
    if address > MOST_ADDRESS:
        raise Fault(f"{place}.address is {address}, more than any memory has")
    kind = segment.get("segment_type", "small" if total <= _SMALL else "large")
    if type(kind) is not str or kind not in ("small", "large"):
        raise Fault(f"{place}.segment_type is {brief(kind)}, not 'small' or 'large'")
    expandable = segment.get("is_expandable", False)
    if type(expandable) is not bool:
        raise Fault.of(f"{place}.is_expandable", expandable, "a bool")
    return Segment(
        device=_field(segment, "device", place, default=0, high=MOST_DEVICES - 1),
        address=address,
        total_size=total,
        stream=_field(segment, "stream", place, default=0, high=UINT64),
        kind=kind,
        pool=_read_pool(segment.get("segment_pool_id", (0, 0)), f"{place}.segment_pool_id"),
        expandable=expandable,
        blocks=_read_blocks(blocks, address, total, place, stacks),
    )


def _read_blocks(
    blocks: list[Any], start: int, total: int, place: str, stacks: StackInterner
) -> tuple[Block, ...]:
    """Blocks in address order within [start, start + total); older files leave addresses out."""
    out = []
    end = start
    for k, block in enumerate(blocks):
        here = f"{place}.blocks[{k}]"
        if type(block) is not dict:
            raise Fault.of(here, block, "a dict")
        size = _field(block, "size", here)
        address = _field(block, "address", here, default=end, high=UINT64)
        if address < end or address + size > start + total:
            raise Fault(
                f"{here} at {address:#x} overlaps the block before it or leaves its segment"
            )
        end = address + size
        state = block.get("state")
        if not is_text(state):
            raise Fault.of(f"{here}.state", state, "a string", "state" in block)
        requested, frames, source = _read_request(block, size, here)
        out.append(
            Block(
                address=address,
                size=size,
                requested=requested,
                state=state,
                stack=stacks.number(frames, source),
            )
        )
    return tuple(out)


def _read_request(block: dict[str, Any], size: int, place: str) -> tuple[int, Any, str]:
    """The requested size, the frames and where they stand.

    Older torch keeps both in ``history``, newest first, as torch/cuda/_memory_viz.py reads it.
    """
    if "history" in block and "frames" not in block:
        history = block["history"]
        if type(history) is not list:
            raise Fault.of(f"{place}.history", history, "a list")
        if not history:
            return 0, None, place
        newest, here = history[0], f"{place}.history[0]"
        if type(newest) is not dict:
            raise Fault.of(here, newest, "a dict")
        return _field(newest, "real_size", here), newest.get("frames"), here
    return _field(block, "requested_size", place, default=0), block.get("frames"), place


def _read_pool(pool: Any, place: str) -> tuple[int, int]:
    if type(pool) not in (tuple, list) or len(pool) != 2:
        raise Fault.of(place, pool, "a pair of integers")
    return (
        integer(pool[0], f"{place}[0]", high=UINT64),
        integer(pool[1], f"{place}[1]", high=UINT64),
    )


def _field(
    record: dict[str, Any],
    key: str,
    place: str,
    default: int | None = None,
    high: int | None = None,
) -> int:
    value = record.get(key, default)
    if high is None:
        return integer(value, f"{place}.{key}", present=key in record)
    return integer(value, f"{place}.{key}", high=high, present=key in record)
