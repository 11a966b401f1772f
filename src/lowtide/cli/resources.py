"""Too little memory or a full disk is no bug: one sentence, and what to do about it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.device.exhausted import is_out_of_memory
from lowtide.errors import InputError


@contextmanager
def resources_suffice(batch_size: int, advice: str = "try a smaller one") -> Iterator[None]:
    """Run the block; where memory or disk run out, an InputError says so, with `advice` in the case of memory."""
    try:
        yield
    except (MemoryError, RuntimeError, InputError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(f"not enough memory for batch size {batch_size}: {advice}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise InputError(f"cannot write temporary files: {error.strerror}; set TMPDIR to a larger disk") from error
