"""Start-up as a record, and the shapes that it is measured with."""

from pathlib import Path

import torch

from lowtide.experiments.startup.record import Shape, Stage, Startup
from lowtide.experiments.startup.run import smaller
from lowtide.pages.readme import with_tables


def test_the_table_is_the_record(tmp_path: Path) -> None:
    shapes = tuple(Shape(f"batch: {n}", 3.0, (1.0, 2.0, 1.0), False) for n in range(2))
    record = Startup(
        *("bert-base", ("batch: float32[8]",), "80%", "before", "2.13", 2, (Stage("capture", 5.0),), 18.0),
        *(7.5, 4, (2.0, 2.5, 3.0), (0.0025,), 1.0, shapes),
    )
    (tmp_path / "startup" / "bert-base").mkdir(parents=True)
    record.save(tmp_path / "startup" / "bert-base" / "startup.json")
    assert Startup.load(tmp_path / "startup" / "bert-base" / "startup.json") == record
    page = with_tables("<!-- table startup -->\n<!-- end of table -->", tmp_path)
    assert "| bert-base, 80% | before | 18 s | 7.2 | 3.0 | 0.10% | 0.40 | 2 | 1.6 |" in page


def test_sequences_are_cut_where_there_are_any() -> None:
    text = {"ids": torch.zeros(8, 128, dtype=torch.long), "labels": torch.zeros(8, dtype=torch.long)}
    assert [smaller(text, n)["ids"].shape for n in (1, 9)] == [(8, 122), (8, 74)]
    assert smaller(text, 3)["labels"].shape == (8,)
    images = (torch.zeros(32, 3, 8, 8), torch.zeros(32, dtype=torch.long))
    assert [x.shape[0] for x in smaller(images, 2)] == [30, 30]
