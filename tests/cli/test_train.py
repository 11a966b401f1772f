"""`lowtide train` end to end, on a small model with dropout and BatchNorm."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lowtide.experiments import eager_training
from lowtide.experiments.eager_training import EagerCopy, differences
from lowtide.records.step_plan import PlanFile
from lowtide.records.training_run import TrainingRun
from tests.cli.running import run_main

MODEL = """
import torch
from torch import nn

def net(n):
    block = lambda: (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(*(part for _ in range(6) for part in block()), nn.Linear(64, 1))
    return model, torch.randn(n, 64), lambda model, batch: model(batch).square().mean()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:net"


def test_trains_inside_the_budget_and_is_equal(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (net, "--batch-size", "256", "--steps", "3", "--budget", "60%", "--time-limit", "2", "--compare")
    assert run_main(monkeypatch, "train", *words, "--out", tmp_path / "out") == 0
    told = capsys.readouterr().out
    assert "step 3/3" in told
    assert "Equal to eager training, bit for bit, after every step of 3" in told
    assert "neighbouring pairs" in told
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"training.json", "memory.png", "plan.json"}
    run = TrainingRun.load(tmp_path / "out" / "training.json")
    assert run.plan is not None
    assert run.plan.rewritten
    assert run.peak_B is not None
    assert run.eager_peak_B is not None
    assert run.peak_B <= run.plan.budget_B < run.eager_peak_B
    assert len(run.steps) == 3
    assert len(run.ratios) == 2
    assert run.plan.recomputed.count + run.plan.packed.count > 0


@pytest.mark.slow
def test_a_plan_is_saved_and_used_with_accumulation_and_clipping(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    words = (net, "--batch-size", "256", "--steps", "4", "--accumulate", "2", "--clip-grad-norm", "0.01", "--compare")
    budget = ("--budget", "70%", "--time-limit", "2")
    assert run_main(monkeypatch, "train", *words, *budget, "--save-plan", plan, "--out", tmp_path / "one") == 0
    assert len(PlanFile.load(plan).plans) == 2
    assert run_main(monkeypatch, "train", *words, "--plan", plan, "--out", tmp_path / "two") == 0
    capsys.readouterr()
    one, two = (TrainingRun.load(tmp_path / name / "training.json") for name in ("one", "two"))
    assert [step.loss for step in one.steps] == [step.loss for step in two.steps]
    assert one.plan == two.plan


def test_without_a_budget_it_trains_as_captured(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "train", net, "--batch-size", "8", "--steps", "2", "--out", tmp_path / "out") == 0
    assert "no budget was given" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["training.json"]
    assert TrainingRun.load(tmp_path / "out" / "training.json").plan is None


def test_a_difference_is_named_and_ends_with_exit_code_1(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = EagerCopy.step

    def nudged(self: EagerCopy, batch: object) -> tuple[object, float, int | None]:
        taken = honest(self, batch)
        if self._calls == 2:
            with torch.no_grad():
                next(self.model.parameters())[0, 0] += 1e-6
        return taken

    monkeypatch.setattr(eager_training.EagerCopy, "step", nudged)
    assert run_main(monkeypatch, "train", net, "--batch-size", "8", "--steps", "3", "--compare") == 1
    assert "NOT EQUAL to eager training: the parameter 0.weight differs first after step 2." in capsys.readouterr().out


def test_differences_bite_and_take_no_number_for_equal_to_itself() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    copied = EagerCopy(model, optimizer, lambda model, batch: model(batch).sum())
    other = EagerCopy(model, optimizer, lambda model, batch: model(batch).sum())
    batch = torch.randn(4, 2)
    loss, _, _ = copied.step(batch)
    sides = (copied.model, copied.optimizer), (other.model, other.optimizer)
    found = list(differences(*sides, (loss, loss)))
    assert "the parameter 0.weight" in found
    assert "the optimizer's exp_avg of 0.weight" in found
    assert "the buffer 1.running_mean" in found
    other.step(batch)
    assert not list(differences(*sides, (torch.tensor(torch.nan), torch.tensor(torch.nan))))
    assert list(differences(*sides, (loss, loss + 1))) == ["the loss"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--steps", "0"), 2, "--steps must be at least 1"),
        (("--steps", "1", "--budget", "many"), 2, "'many' is no size"),
        (("--steps", "1", "--memory-limit", "50%"), 2, "only bytes make sense"),
        (("--steps", "1", "--policy", "best"), 2, "best"),
        (("--steps", "1", "--save-plan", "plan.json"), 2, "--save-plan is for planning"),
        (("--steps", "1", "--budget", "1GB", "--plan", "plan.json"), 2, "--plan has a budget of its own"),
        (("--steps", "1", "--budget", "1KB"), 3, "no plan can fit the step into 1000 B"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    words: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "train", "mlp", "--batch-size", "2", *words, "--out", tmp_path / "new") == code
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("lowtide: ")
    assert message in last
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_two_ranks_stay_inside_the_budget_and_are_equal(
    way: str, net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (net, "--batch-size", "256", "--steps", "3", "--budget", "75%", "--time-limit", "2", "--compare")
    out = tmp_path / "out"
    assert run_main(monkeypatch, "train", *words, "--nproc", 2, "--parallel", way, "--out", out) == 0
    assert "2 ranks" in capsys.readouterr().out
    names = {"training.json", "training-rank1.json", "memory.png", "lanes.png", "plan.json"}
    assert {path.name for path in out.iterdir()} == names
    runs = [TrainingRun.load(out / name) for name in ("training.json", "training-rank1.json")]
    assert [run.difference for run in runs] == [None, None]
    assert runs[0].steps[0].loss != runs[1].steps[0].loss
    assert runs[0].plan is not None
    assert all(run.peak_B is not None and run.peak_B <= runs[0].plan.budget_B for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "budget", "code", "said"),
    [
        ("net", "1KiB", 3, "lowtide: no plan can fit the step into 1.00 KiB"),
        ("broken", "75%", 2, "lowtide: rank 0: "),
    ],
)
def test_what_fails_on_ranks_is_one_line(
    model: str,
    budget: str,
    code: int,
    said: str,
    net: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (net.replace(":net", f":{model}"), "--batch-size", "64", "--budget", budget, "--time-limit", "1")
    assert run_main(monkeypatch, "train", *words, "--nproc", 2, "--parallel", "fsdp") == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nproc", 2), "--nproc and --parallel belong together"),
        (("--parallel", "ddp"), "--nproc and --parallel belong together"),
        (("--nproc", 1, "--parallel", "ddp"), "--nproc must be at least 2, not 1"),
        (("--nproc", 2, "--parallel", "tp"), "unknown way to train in parallel 'tp': write ddp or fsdp"),
    ],
)
def test_wrong_words_about_ranks(
    words: tuple[object, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "train", "mlp", *words) == 2
    assert said in capsys.readouterr().err
