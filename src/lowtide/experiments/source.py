"""Has the user's model changed since it was measured?"""

import hashlib
from pathlib import Path


def source_hash(model: str) -> str:
    """Of the file in `path/to/file.py:function`; empty for reference models, modules, and where there is no file."""
    path = Path(model.rpartition(":")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
