"""trace.json: the step for Perfetto or chrome://tracing; ops by lane, memory as a counter track."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lowtide.files import write_text
from lowtide.planning.problem import COMPUTE
from lowtide.reporting.step_view import StepView

TRACE_NAME = "trace.json"


def write_trace(views: Sequence[StepView], model: str, path: Path) -> None:
    """One process per view, each with a thread per lane and a counter of bytes by what they are."""
    content = {
        "displayTimeUnit": "ms",
        "otherData": {"made by": "lowtide report", "model": model, **{view.title: view.how for view in views}},
        "traceEvents": [event for number, view in enumerate(views, 1) for event in _events(view, number)],
    }
    write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")


def _events(view: StepView, process: int) -> Iterator[dict[str, Any]]:
    lanes = [COMPUTE, *sorted({run.lane for run in view.runs} - {COMPUTE})]
    yield _named("process_name", process, 0, f"step {view.title} ({view.how})")
    for thread, lane in enumerate(lanes, 1):
        yield _named("thread_name", process, thread, lane)
    for run, total in zip(view.runs, view.totals, strict=True):
        yield {
            "ph": "X",
            "pid": process,
            "tid": lanes.index(run.lane) + 1,
            "name": run.name,
            "cat": run.kind,
            "ts": _us(run.start_ms),
            "dur": _us(run.ms),
            "args": {
                "op": run.op,
                "module": run.module,
                "line": run.source,
                "phase": run.phase,
                "kind": run.kind,
                "device bytes": total,
            },
        }
    for step, run in enumerate(view.runs):
        sizes = {layer.word: layer.bytes[step] for layer in view.layers}
        yield {"ph": "C", "pid": process, "name": "device bytes", "ts": _us(run.start_ms), "args": sizes}
    yield {
        "ph": "C",
        "pid": process,
        "name": "device bytes",
        "ts": _us(view.ms),
        "args": {layer.word: layer.bytes[-1] for layer in view.layers},
    }


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _us(ms: float) -> float:
    """Microseconds to the nanosecond, as the format wants them."""
    return round(1000 * ms, 3)
