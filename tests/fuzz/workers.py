"""Programs in processes of their own: one that dies or does not end is a finding, and the next goes on."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

Result = dict[str, Any]


class Worker:
    """A process that takes a seed per line and answers with two: the program, once eager torch has run it, and the
    result. Where there is not even a program, eager torch itself ended the process."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "tests.fuzz", "--worker")) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def run(self, seed: int, seconds: float) -> Result:
        """What became of the program of `seed`; a process that others have used up gets a second one to try."""
        fresh = self._process is None
        result = self._run(seed, seconds)
        return self._run(seed, seconds) if result["name"] == "unusable" and not fresh else result

    def _run(self, seed: int, seconds: float) -> Result:
        if self._process is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        process, late = self._process, threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # a process that is gone says nothing
                process.stdin.write(f"{seed}\n")
                process.stdin.flush()
            program = process.stdout.readline()
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if line:
            answer: Result = json.loads(line)
            return answer
        code = self._end(process)
        detail = f"took longer than {seconds:g} s" if late.is_set() else f"the process ended with code {code}"
        name, what = ("killed", program.strip()) if program else ("unusable", None)
        return {"seed": seed, "name": name, "detail": detail, "program": what, "seconds": seconds}

    def close(self) -> None:
        """Let the process end."""
        if self._process is not None:
            self._end(self._process)

    def _end(self, process: subprocess.Popen[str]) -> int:
        """Close both pipes and wait; the pipe to a process that is gone may break."""
        self._process = None
        with suppress(BrokenPipeError), process:
            pass
        return process.wait()


@contextmanager
def _worker() -> Iterator[Worker]:
    worker = Worker()
    try:
        yield worker
    finally:
        worker.close()


def run_all(seeds: range, jobs: int, seconds: float, told: Callable[[Result], None]) -> None:
    """Run all `seeds` on `jobs` processes and tell each result as it comes, from one thread at a time."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    telling, failures = threading.Lock(), list[BaseException]()

    def work() -> None:
        try:
            with _worker() as worker:
                while not failures:
                    try:
                        seed = waiting.get_nowait()
                    except Empty:
                        return
                    result = worker.run(seed, seconds)
                    with telling:
                        told(result)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
