"""Tells, where another rank asks, that this one is alive: a rank that waits in a collective cannot say so itself."""

import atexit
import threading
from typing import Any

ASKED = "lowtide/asked"
PAUSE = 1.0
"""Seconds between two looks."""
_over = threading.Event()
_threads: list[threading.Thread] = []


def answer(store: Any, name: int) -> None:
    """From now on, in a thread; once per process and as long as its group has a store."""
    if not any(thread.is_alive() for thread in _threads):
        _threads[:] = [threading.Thread(target=_listen, args=(store, name), name="lowtide alive", daemon=True)]
        _threads[0].start()


def _listen(store: Any, name: int) -> None:
    while not _over.wait(PAUSE):
        try:
            if store.check([ASKED]):
                store.set(f"lowtide/alive/{name}", "")
                return
        except RuntimeError:  # whoever holds the store is gone: nobody is left to ask
            return


@atexit.register
def _end() -> None:
    """Before Python goes: a thread inside of the store would end badly then."""
    _over.set()
    for thread in _threads:
        thread.join(PAUSE)
