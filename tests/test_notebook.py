"""examples/quickstart.ipynb runs from top to bottom, and shows what it is meant to show."""

import sys
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import lowtide
from lowtide.training.progress import Progress, _Line, in_notebook
from tests.reporting.synthetic import chain

NOTEBOOK = Path(__file__).parent.parent / "examples" / "quickstart.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_runs(tmp_path: Path) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert all(cell.get("outputs", []) == [] for cell in notebook.cells), "it is committed without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error"]
    data: list[Any] = [out.data for out in outputs if "data" in out]
    assert any("image/png" in each for each in data)
    assert any("<details>" in each.get("text/html", "") for each in data)
    assert any("<table>" in each.get("text/html", "") for each in data)
    assert any("capture" in out.text for out in outputs if out.get("name") == "stderr")


def test_steps_and_profiles_as_html() -> None:
    model = torch.nn.Linear(4, 1)
    step = lowtide.train_step(
        model, torch.optim.SGD(model.parameters()), torch.ones(2, 4), lambda model, batch: model(batch).sum()
    )
    assert "TrainStep(Linear" in step._repr_html_()
    shown = chain(prefix="<b>")._repr_html_()
    assert "&lt;b&gt;" in shown
    assert shown.count("<th>activation</th>") == 3


def test_progress_under_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    stream: Any = type("OutStream", (StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", stream)
    assert in_notebook()
    line: Progress = _Line(stream)
    line.say("capture the step")
    line.measuring(1, 2, "run 1")
    line.say("plan")
    assert stream.getvalue() == "\rcapture the step\rplan            "
