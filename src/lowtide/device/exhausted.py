"""When memory has run out. Imports no torch: the command line asks before torch is loaded."""

import re

from lowtide.errors import InputError, LowtideError

# torch has no class of its own for it on CPU; cuBLAS and cuDNN only have words for it as well.
_NO_MEMORY = re.compile(
    "not enough memory|can't allocate memory|out of memory|size calculation overflowed|bad_alloc|bad allocation"
    "|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Also where a user's function ran out of memory, which is an InputError about that function. Other errors of ours
    have words of their own for it."""
    if isinstance(error, InputError):
        return is_out_of_memory(error.__cause__)
    if isinstance(error, LowtideError):
        return False
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error))))
