"""The file behind the disk tier: nameless, the owner's alone, past the page cache where the file system can."""

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
from pathlib import Path

from lowtide.device.swap.space import SwapError
from lowtide.files import owned_prefix
from lowtide.units import format_bytes

_IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}
"""File systems that are memory themselves, by the numbers in Linux' magic.h."""
_BLOCKS = (512, 4096)
"""What direct I/O may ask addresses, offsets and sizes to be multiples of."""
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


class SwapFile:
    """Bytes by offset. Nothing has a name, so nothing is left behind, however the process ends.

    `block` is what addresses, offsets and sizes must be multiples of: 1 where bytes go through the page cache, which
    then is told to let go of them after each transfer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = 0
        try:
            self._handle = _open_nameless(folder)
        except OSError as error:
            raise SwapError(
                f"no swap file can be made in {folder}: {error.strerror}; give another folder to swap into"
            ) from None
        try:
            memory = _memory_file_system(self._handle)
            self.in_memory = memory is not None
            self.block = 1 if self.in_memory else _direct(self._handle)
        except OSError as error:
            self.close()
            raise SwapError(
                f"the swap file in {folder} cannot be used: {error.strerror}; give another folder to swap into"
            ) from None
        self.kind = "disk, direct I/O" if self.block > 1 else "disk, through the page cache"
        if memory is not None:
            self.kind = f"disk, but {memory}: the bytes stay in memory"

    def grow(self, size: int) -> None:
        """Make it `size` bytes long, all of them really there on the disk; unchanged where they are not."""
        try:
            self._allocate(self.size, size - self.size)
        except OSError as error:
            os.ftruncate(self._handle, self.size)
            raise SwapError(
                f"no room for {format_bytes(size)} of swapped values in {self.folder}: {error.strerror}; "
                "free some there or give another folder to swap into"
            ) from None
        self.size = size

    def write(self, data: memoryview, offset: int) -> None:
        """All of `data`, however many calls it takes; OSError where the file system does not go on."""
        done = 0
        while done < len(data):
            with data[done:] as rest:
                done += _progress(self._pwrite(rest, offset + done))
        if self.block == 1:
            os.fdatasync(self._handle)
        self._leave_cache(offset, len(data))

    def read(self, data: memoryview, offset: int) -> None:
        """Fill all of `data`, however many calls it takes; OSError where the file system does not go on."""
        done = 0
        while done < len(data):
            with data[done:] as rest:
                done += _progress(self._pread(rest, offset + done))
        self._leave_cache(offset, len(data))

    def close(self) -> None:
        """The file is gone then; once is enough."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _allocate(self, offset: int, size: int) -> None:
        """Asks first: some file systems fill the whole disk before they find out that it is too small."""
        system = os.fstatvfs(self._handle)
        if system.f_bavail * system.f_frsize < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(self._handle, offset, size)

    def _pwrite(self, data: memoryview, offset: int) -> int:
        return os.pwrite(self._handle, data, offset)

    def _pread(self, data: memoryview, offset: int) -> int:
        return os.preadv(self._handle, [data], offset)

    def _leave_cache(self, offset: int, size: int) -> None:
        """Also with direct I/O, which some file systems (btrfs with checksums) quietly take through the cache."""
        os.posix_fadvise(self._handle, offset, size, os.POSIX_FADV_DONTNEED)


def _progress(moved: int) -> int:
    if moved <= 0:
        raise OSError(errno.EIO, "the file system moves no more bytes and names no error")
    return moved


def _open_nameless(folder: Path) -> int:
    """A file of its owner alone that never had a name, or loses it at once."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
    handle, name = tempfile.mkstemp(dir=folder, prefix=owned_prefix(folder))
    Path(name).unlink()
    return handle


def _memory_file_system(handle: int) -> str | None:
    """The name of the file system where it is one that lives in memory."""
    fields = (ctypes.c_long * 64)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fstatfs(handle, fields) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return _IN_MEMORY.get(fields[0] & 0xFFFFFFFF)


def _direct(handle: int) -> int:
    """Switch direct I/O on and find its block by trying; 1, and off again, where the file system has none."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return 1
    for block in _BLOCKS:
        if _takes(handle, block):
            return block
    fcntl.fcntl(handle, fcntl.F_SETFL, flags)
    return 1


def _takes(handle: int, block: int) -> bool:
    """Whether a block can be written from and read to memory and an offset that are multiples of no larger one."""
    with mmap.mmap(-1, 2 * max(_BLOCKS)) as memory, memoryview(memory) as whole, whole[block : 2 * block] as part:
        try:
            return os.pwrite(handle, part, block) == block and os.preadv(handle, [part], block) == block
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        finally:
            os.ftruncate(handle, 0)
