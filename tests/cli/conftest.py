"""Captures for the commands to read."""

import pickle

import pytest


def snapshot(*sizes):
    """A plain snapshot: one allocation of each size, each from a line of its own."""
    history = [
        {
            "action": "alloc", "addr": 0x1000 * (k + 1), "size": size, "stream": 0,
            "time_us": k, "frames": [{"filename": "/a/b.py", "line": k, "name": "f"}],
        }
        for k, size in enumerate(sizes)
    ]  # fmt: skip
    return {"segments": [], "device_traces": [history], "allocator_settings": {}}


@pytest.fixture
def write(tmp_path):
    def write_one(name, *sizes):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(snapshot(*sizes), protocol=4))
        return str(path)

    return write_one
