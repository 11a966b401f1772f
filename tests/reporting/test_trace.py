"""trace.json has the form that Perfetto and chrome://tracing read."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from lowtide.reporting.plan_view import planned_view
from lowtide.reporting.step_view import measured_view
from lowtide.reporting.trace import TRACE_NAME, write_trace

from .plans import chain_plan
from .synthetic import chain
from .test_csv_files import NASTY


@pytest.mark.parametrize("lane", ["compute", "copy"])
def test_ops_stand_on_lanes_with_memory_as_a_counter(tmp_path: Path, lane: str) -> None:
    profile = chain(prefix=NASTY)
    views = [measured_view(profile), planned_view(chain_plan(profile, lane=lane), profile)]
    write_trace(views, profile.model, tmp_path / TRACE_NAME)
    trace = json.loads((tmp_path / TRACE_NAME).read_text())
    assert "measured" in trace["otherData"]["as captured"]
    assert "predicted" in trace["otherData"]["planned"]
    assert trace["otherData"]["model"] == profile.model
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(set(lanes.values())) == sorted({"compute", lane})
    for process, view in enumerate(views, 1):
        ops = [event for event in events if event["ph"] == "X" and event["pid"] == process]
        assert [(op["name"], op["args"]["module"], op["args"]["line"]) for op in ops] == [
            (run.name, run.module, run.source) for run in view.runs
        ]
        assert [lanes[op["pid"], op["tid"]] for op in ops] == [run.lane for run in view.runs]
        assert all(op["ts"] >= 0 and op["dur"] >= 0 for op in ops)
        for number in {op["tid"] for op in ops}:
            mine = [op for op in ops if op["tid"] == number]
            assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in pairwise(mine))
        counters = [event for event in events if event["ph"] == "C" and event["pid"] == process]
        assert [sum(counter["args"].values()) for counter in counters] == [*view.totals, view.totals[-1]]
        assert [counter["ts"] for counter in counters[:-1]] == [op["ts"] for op in ops]
