"""Files of generated code, told by their names as stacks have them."""

from __future__ import annotations

import re
from functools import lru_cache

_CACHE_FOLDER = re.compile(r"(?:^|/)(?:torchinductor_[^/]+|inductor_cache|torchinductor)/")
_HASHED_FILE = re.compile(r"/(?P<folder>[a-z2-7]{2})/c(?P=folder)[a-z2-7]{20,}\.py$")
_THUNDER = "thunder."  # 'thunder.computation_25'; files of the package itself have paths


def is_thunder_file(filename: str) -> bool:
    """Whether Thunder generated a file: a trace, or a region that it gives to torch.compile."""
    return filename.startswith(_THUNDER)


@lru_cache(maxsize=4096)  # asked of every frame of every stack
def is_output_file(filename: str) -> bool:
    """Whether a file is Inductor's output: by its cache folder, or by its hashed name."""
    path = filename.replace("\\", "/")
    if not path.endswith(".py"):
        return False
    return bool(_CACHE_FOLDER.search(path) or _HASHED_FILE.search(path))


def is_generated(filename: str) -> bool:
    """Whether a compiler wrote a file."""
    return is_thunder_file(filename) or is_output_file(filename)
