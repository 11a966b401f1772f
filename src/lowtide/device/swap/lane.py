"""One thread that does transfers in the order in which they are asked for, and stands still while the process forks."""

import os
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, current_thread
from weakref import WeakSet

Work = Callable[[], None]


class Cancelled(Exception):
    """The transfer was called off before it started."""


class Transfer:
    """One piece of work of a lane. Holds nothing of the value any more when it is done, however it went."""

    def __init__(self, work: Work) -> None:
        self._work: Work | None = work
        self._done = Event()
        self.failure: Exception | None = None
        """Why it did not come to its end; to be looked at when it is done."""

    def run(self) -> None:
        """Do it. Any failure is kept for whoever waits, without the frames, which would keep the value alive."""
        assert self._work is not None
        try:
            self._work()
        except Exception as failure:  # noqa: BLE001 - not hidden: raised in the thread that waits
            self.failure = failure.with_traceback(None)
        self._finish()

    def cancel(self) -> None:
        """It will not be done."""
        self.failure = Cancelled()
        self._finish()

    def wait(self) -> None:
        """Block until it is done, well or not."""
        self._done.wait()

    def _finish(self) -> None:
        self._work = None  # before the word is out: whoever waits may count on the memory
        self._done.set()


class Lane:
    """First in, first out. The thread is there from the beginning and does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Transfer | None] = SimpleQueue()
        self._still = Lock()
        self._thread = Thread(target=_drive, args=(self._queue, self._still), name="lowtide-swap", daemon=True)
        self._thread.start()
        _LANES.add(self)

    def put(self, work: Work) -> Transfer:
        """Ask for `work`, behind all that was asked for before."""
        transfer = Transfer(work)
        self._queue.put(transfer)
        return transfer

    def cancel(self) -> None:
        """Call off what has not started and wait for what has."""
        self._call_off()
        self.put(_nothing).wait()

    def close(self) -> None:
        """Call off what has not started, and end the thread; it may itself be the one that collects the garbage."""
        self._call_off()
        self._queue.put(None)
        if self._thread is not current_thread():
            self._thread.join()

    def _call_off(self) -> None:
        with suppress(Empty):
            while waiting := self._queue.get_nowait():
                waiting.cancel()

    def hold(self) -> None:
        """Wait for what runs and start nothing more, until `release`."""
        self._still.acquire()

    def release(self) -> None:
        """Go on."""
        self._still.release()


def _nothing() -> None:
    """Work whose end says that all before it is over."""


def _drive(queue: "SimpleQueue[Transfer | None]", still: Lock) -> None:
    """What the thread does: no name of a transfer outlives its turn, for it would keep failures and memory."""
    while _next(queue, still):
        pass


def _next(queue: "SimpleQueue[Transfer | None]", still: Lock) -> bool:
    transfer = queue.get()
    if transfer is None:
        return False
    with still:
        transfer.run()
    return True


_FORKING = Lock()
_LANES: WeakSet[Lane] = WeakSet()
_HELD: list[Lane] = []


def _hold_all() -> None:
    """A fork in the middle of direct I/O could let bytes land in the pages of the child instead of ours."""
    _FORKING.acquire()  # one fork at a time
    for lane in list(_LANES):
        lane.hold()
        _HELD.append(lane)


def _release_all() -> None:
    while _HELD:
        _HELD.pop().release()
    _FORKING.release()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
