"""`lowtide.train_step`: equal to eager training, inside the budget, in the loops that people write."""

import copy
import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

import lowtide
from lowtide.device.shim import compiler, load_shim
from lowtide.errors import InputError
from lowtide.records.step_plan import Act
from lowtide.tracing.loss import model_loss
from tests.equality import Trained, differences
from tests.rewriting.test_rewrite import tiled
from tests.tracing.test_equal import FORMS, Lookahead
from tests.zoo import ZOO, Case, often
from tests.zoo.models import classify, images

BLOCKS = 6


def deep_convnet() -> Case:
    """Convolution, BatchNorm, ReLU in place and dropout, several times: something to recompute."""
    blocks = [
        layer
        for _ in range(BLOCKS)
        for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.1))
    ]
    model = nn.Sequential(nn.Conv2d(3, 8, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return Case(model, images(16, 12), images(16, 12), classify)


MakeOptimizer = Callable[[nn.Module], Optimizer]


def adam(model: nn.Module) -> Optimizer:
    """The usual optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def setting(case: Case, make: MakeOptimizer = adam) -> tuple[Trained, Trained]:
    """A model and its eager twin."""
    ours = Trained(case.model, make(case.model))
    return ours, ours.copy()


def eager_micro_step(
    trained: Trained, case: Case, batch: Any, seed: int, *, place: int, accumulate: int = 1, clip: float | None = None
) -> None:
    """What a user writes: zero, backward, and at every k-th call clip and step; gradients cleared behind it."""
    torch.manual_seed(seed)
    if place == 0:
        trained.optimizer.zero_grad(set_to_none=True)
    trained.loss = (case.loss or model_loss)(trained.model, batch)
    first = trained.loss[0] if isinstance(trained.loss, tuple) else trained.loss
    first.backward()
    if place == accumulate - 1:
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(trained.model.parameters(), clip)
        trained.optimizer.step()
        trained.model.zero_grad(set_to_none=True)
        trained.optimizer.zero_grad(set_to_none=True)


def assert_equal(
    case: Case,
    ours: Trained,
    theirs: Trained,
    step: lowtide.TrainStep,
    *,
    calls: int = 3,
    accumulate: int = 1,
    clip: float | None = None,
) -> None:
    """Both train; everything is compared after every call, and the peak stays inside the budget."""
    for call in range(calls):
        batch = case.other if call % 2 else case.batch
        torch.manual_seed(call)
        ours.loss = step(batch)
        generator = torch.get_rng_state()
        place = call % accumulate
        eager_micro_step(theirs, case, batch, call, place=place, accumulate=accumulate, clip=clip)
        assert torch.equal(generator, torch.get_rng_state()), "the generator ended elsewhere"
        assert list(differences(ours, theirs)) == [], f"call {call}"
        if step.plan is not None:
            assert step.measured_peak is not None
            assert step.measured_peak <= step.plan.budget


ROOMY = ("convnet", "encoder", "bert", "distilbert", "qwen2", "t5", "segformer", "lstm", "gru", "autocast", "homemade")


@pytest.mark.parametrize("name", often([*ROOMY, "deep convnet"], 1))
def test_budgets_from_slack_to_the_floor(name: str) -> None:
    case = deep_convnet() if name == "deep convnet" else tiled(ZOO[name](), 8)
    ours, theirs = setting(case)
    tightest = None
    for budget in ("100%", "85%", "65%"):
        try:
            step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=1)
        except lowtide.BudgetInfeasible as infeasible:
            tightest = infeasible.floor
            break
        assert step.plan is not None
        assert step.plan.rewritten == (step.plan.unplanned_peak > step.plan.budget)
        assert_equal(case, ours, theirs, step, calls=2)
        assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.05)
    if tightest is not None:
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, int(tightest * 1.02), time_limit=1)
        assert_equal(case, ours, theirs, step, calls=2)


EARLY = [
    form if "fused" in str(form.id) else pytest.param(*form.values, id=form.id, marks=pytest.mark.slow)
    for form in FORMS
]
"""In a for-loop the update is the same whenever it runs: `test_equal` has those often."""


@pytest.mark.parametrize(("cls", "options"), EARLY)
def test_every_optimizer_form_with_early_updates(cls: type[Optimizer], options: dict[str, Any]) -> None:
    def make(model: nn.Module) -> Optimizer:
        first, *rest = model.parameters()
        return cls([{"params": [first], "lr": 0.003}, {"params": rest}], **options)  # type: ignore[arg-type]

    case = tiled(ZOO["mlp"](), 8)
    ours, theirs = setting(case, make)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "99%", time_limit=1)
    assert step.plan is not None
    assert sum(step.plan.actions[o].act == "update" for o in step.plan.order) > 1
    assert_equal(case, ours, theirs, step)


@pytest.mark.parametrize("accumulate", often([3, 2], 1))
@pytest.mark.parametrize("clip", often([0.1, None], 1))
@pytest.mark.parametrize("name", often(["encoder", "distilbert", "deep convnet"], ["encoder"]))
def test_accumulation_and_clipping(name: str, accumulate: int, clip: float | None) -> None:
    case = deep_convnet() if name == "deep convnet" else tiled(ZOO[name](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model,
        ours.optimizer,
        case.batch,
        case.loss,
        budget="92%",
        clip_grad_norm=clip,
        accumulate=accumulate,
        time_limit=1,
    )
    assert_equal(case, ours, theirs, step, calls=2 * accumulate, accumulate=accumulate, clip=clip)
    if clip is not None:
        assert step.last.norm is not None


def test_clipping_alone_keeps_the_updates_at_the_end() -> None:
    case = tiled(ZOO["encoder"](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "80%", clip_grad_norm=0.5, time_limit=1
    )
    assert step.plan is not None
    assert [step.plan.actions[o].act for o in step.plan.order].count(Act.UPDATE) == 1
    assert_equal(case, ours, theirs, step, clip=0.5)


def test_an_optimizer_of_another_library_and_hooks_see_one_step() -> None:
    case = tiled(ZOO["mlp"](), 8)
    ours, theirs = setting(case, lambda model: Lookahead(model.parameters()))
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "98%", time_limit=1)
    assert_equal(case, ours, theirs, step)
    calls: list[int] = []
    hooked = torch.optim.SGD(case.model.parameters(), lr=0.1)
    hooked.register_step_post_hook(lambda *_: calls.append(1))
    step = lowtide.train_step(case.model, hooked, case.batch, case.loss, "98%", time_limit=1)
    step(case.batch)
    assert calls == [1]


def test_without_a_budget_nothing_is_measured_or_rewritten() -> None:
    case = ZOO["mlp"]()
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss)
    assert (step.plan, step.profile, step.predicted_peak) == (None, None, None)
    assert_equal(case, ours, theirs, step)
    assert "no budget" in str(step)
    with pytest.raises(InputError, match="no plan to save"):
        step.save_plan("nowhere.json")


def test_what_the_loss_returns_beside_it_comes_back() -> None:
    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        logits = model(batch[0])
        return F.cross_entropy(logits, batch[1]), {"logits": logits}

    case = tiled(ZOO["mlp"](), 8)
    case = Case(case.model, case.batch, case.other, loss)
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, loss, "95%", time_limit=1)
    assert_equal(case, ours, theirs, step)
    value, extra = step(case.batch)
    assert not value.requires_grad
    assert extra["logits"].shape == (32, 5)


def test_a_budget_that_cannot_be_met_says_why_and_what_would_help() -> None:
    case = tiled(ZOO["encoder"](), 8)
    ours, _ = setting(case)
    before = copy.deepcopy(ours.model.state_dict())
    with pytest.raises(lowtide.BudgetInfeasible) as caught:
        lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "20%", time_limit=1)
    text = str(caught.value)
    assert "tests/zoo/models.py:" in text
    assert "smaller batch" in text
    assert caught.value.floor > caught.value.budget
    with pytest.raises(lowtide.BudgetInfeasible, match="less state or a smaller model"):
        lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, 1000, time_limit=1)
    assert all(torch.equal(before[name], x) for name, x in ours.model.state_dict().items())
    assert not ours.optimizer.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "lots"}, "no size"),
        ({"budget": 0}, "more than zero"),
        ({"policy": "best"}, "no policy"),
        ({"clip_grad_norm": -1.0}, "clip_grad_norm"),
        ({"accumulate": 0}, "accumulate"),
        ({"accumulate": True}, "accumulate"),
        ({"time_limit": 0}, "time_limit"),
        ({"plan": "not/there.json"}, "cannot read"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    case = ZOO["mlp"]()
    with pytest.raises(InputError, match=message):
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, **options)


@pytest.mark.parametrize("policy", often(["mutwo", "chen", "keep_all"], 1))
def test_other_policies_train_as_well(policy: str) -> None:
    case = tiled(ZOO["bert"](), 8)
    ours, theirs = setting(case)
    budget = {"keep_all": "100%", "chen": "97%", "mutwo": "85%"}[policy]
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, policy, time_limit=2)
    assert_equal(case, ours, theirs, step)


class TestPlanFile:
    """Plans that are saved and used again."""

    def test_a_saved_plan_is_used_without_measuring(self, tmp_path: Path) -> None:
        case = tiled(ZOO["encoder"](), 8)
        ours, theirs = setting(case)
        first = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "70%", accumulate=2, time_limit=1)
        first.save_plan(tmp_path / "plan.json")
        path = tmp_path / "plan.json"
        step = lowtide.train_step(
            ours.model, ours.optimizer, case.batch, case.loss, "70%", accumulate=2, plan=tmp_path / "plan.json"
        )
        assert step.profile is None
        assert step.plan == first.plan
        assert_equal(case, ours, theirs, step, calls=4, accumulate=2)
        assert path.stat().st_size < 2_000_000

    @pytest.mark.slow
    def test_a_plan_for_another_step_is_refused(self, tmp_path: Path) -> None:
        case = tiled(ZOO["encoder"](), 8)
        path = tmp_path / "plan.json"
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "80%", time_limit=1).save_plan(path)

        def again(model: nn.Module, optimizer: Optimizer, batch: Any, loss: Any, **options: Any) -> None:
            lowtide.train_step(model, optimizer, batch, loss, "80%", plan=path, **options)

        other = tiled(ZOO["mlp"](), 8)
        with pytest.raises(InputError, match="model is Sequential, but the plan is for Encoder"):
            again(other.model, adam(other.model), other.batch, other.loss)
        with pytest.raises(InputError, match="batch"):
            again(case.model, adam(case.model), tiled(case, 2).batch, case.loss)
        with pytest.raises(InputError, match="optimizer is SGD"):
            again(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1), case.batch, case.loss)
        with pytest.raises(InputError, match="clipping"):
            again(case.model, adam(case.model), case.batch, case.loss, clip_grad_norm=1.0)
        with pytest.raises(InputError, match="holds 1 plans"):
            again(case.model, adam(case.model), case.batch, case.loss, accumulate=2)
        case.model.eval()
        with pytest.raises(InputError, match="another configuration"):
            again(case.model, adam(case.model), case.batch, case.loss)
        path.write_text(path.read_text().replace(str(torch.__version__), "1.0"))
        case.model.train()
        with pytest.raises(InputError, match="torch version"):
            again(case.model, adam(case.model), case.batch, case.loss)
        path.write_text("{}")
        with pytest.raises(InputError, match="lowtide-plan/1"):
            again(case.model, adam(case.model), case.batch, case.loss)


class TestRealLoops:
    """What happens around steps."""

    def test_another_batch_shape_is_captured_anew_and_remembered(self, caplog: pytest.LogCaptureFixture) -> None:
        case = tiled(ZOO["mlp"](), 8)
        small = tiled(ZOO["mlp"](), 4)
        ours, theirs = setting(case)
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "97%", time_limit=1)
        with caplog.at_level(logging.WARNING):
            for number, batch in enumerate((case.batch, small.batch, case.batch, small.batch)):
                ours.loss = step(batch)
                eager_micro_step(theirs, case, batch, number, place=0)
                assert list(differences(ours, theirs)) == []
        assert sum("anew" in record.message for record in caplog.records) == 1
        double = (case.batch[0].double(), case.batch[1])
        with pytest.raises(RuntimeError, match="dtype"):
            step(double)
        ours.loss = step(case.batch)

    @pytest.mark.slow
    def test_only_so_many_forms_are_remembered(self, caplog: pytest.LogCaptureFixture) -> None:
        case = ZOO["mlp"]()
        step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, forms=3)
        with caplog.at_level(logging.WARNING):
            for size in range(2, 7):
                step((torch.randn(size, 8), torch.randint(0, 5, (size,))))
        assert len(step._prepared) == 3
        assert any("forgotten" in record.message for record in caplog.records)

    @pytest.mark.parametrize("change", often(["eval", "frozen", "hook", "dropout", "module", "batch norm"], 3))
    def test_a_changed_world_is_captured_anew(self, change: str, caplog: pytest.LogCaptureFixture) -> None:
        case = ZOO["convnet"]()
        ours, theirs = setting(case, lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss)
        assert_equal(case, ours, theirs, step, calls=2)
        for trained in (ours, theirs):
            model: Any = trained.model
            if change == "eval":
                model.eval()
            elif change == "dropout":
                model[7].p = 0.7
            elif change == "batch norm":
                model[1].momentum = 0.5
            elif change == "module":
                model[6] = nn.Tanh()
            elif change == "frozen":
                model[0].weight.requires_grad_(False)
            else:
                model[9].register_forward_hook(lambda module, args, output: output * 2)
        with caplog.at_level(logging.WARNING):
            assert_equal(case, ours, theirs, step, calls=2)
        assert sum("anew" in record.message for record in caplog.records) == 1

    def test_evaluation_state_dicts_and_settings_between_steps(self) -> None:
        case = deep_convnet()
        ours, theirs = setting(case)
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "80%", time_limit=1)
        saved: list[Any] = []
        for number in range(6):
            torch.manual_seed(number)
            ours.loss = step(case.batch)
            eager_micro_step(theirs, case, case.batch, number, place=0)
            assert list(differences(ours, theirs)) == []
            for trained in (ours, theirs):
                trained.model.eval()
                with torch.no_grad():
                    trained.model(case.batch[0])
                trained.model.train()
                trained.optimizer.param_groups[0]["lr"] *= 0.5
                trained.optimizer.param_groups[0]["weight_decay"] += 0.01
            if number == 1:
                saved = [copy.deepcopy((t.model.state_dict(), t.optimizer.state_dict())) for t in (ours, theirs)]
            if number == 3:
                for trained, (model, optimizer) in zip((ours, theirs), saved, strict=True):
                    trained.model.load_state_dict(model)
                    trained.optimizer.load_state_dict(optimizer)
        assert len(step._prepared) == 1

    def test_copies(self) -> None:
        case = ZOO["mlp"]()
        step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss)
        twin = copy.deepcopy(case.model)
        step(case.batch)
        assert not torch.equal(next(twin.parameters()), next(case.model.parameters()))
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(step)

    @pytest.mark.slow
    def test_many_steps_leak_nothing(self) -> None:
        case = deep_convnet()
        optimizer = torch.optim.Adam(case.model.parameters(), fused=True)
        step = lowtide.train_step(case.model, optimizer, case.batch, case.loss, "80%", time_limit=1)
        for _ in range(5):
            step(case.batch)
        gc.collect()
        shim = load_shim() if compiler() else None
        counts = len(gc.get_objects()), shim.lowtide_current() if shim else 0, threading.active_count()
        for _ in range(1000):
            step(case.batch)
        gc.collect()
        after = len(gc.get_objects()), shim.lowtide_current() if shim else 0, threading.active_count()
        assert after[0] - counts[0] < 50
        assert after[1:] == counts[1:]

    def test_the_captured_batch_does_not_stay_alive(self) -> None:
        import weakref

        case = ZOO["mlp"]()
        batch = tuple(x.clone() for x in case.batch)
        alive = weakref.ref(batch[0])
        step = lowtide.train_step(case.model, adam(case.model), batch, case.loss, "100%", time_limit=1)
        step(batch)
        del batch
        gc.collect()
        assert alive() is None


class TestFailure:
    """An exception inside a step says what has changed, and the next step works."""

    def test_what_had_moved_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        case = tiled(ZOO["mlp"](), 8)
        ours, _ = setting(case, lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "97%", time_limit=1)
        before = {name: p.detach().clone() for name, p in ours.model.named_parameters()}
        calls = 0
        real = torch.optim.SGD.step

        def failing(optimizer: torch.optim.SGD) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            real(optimizer)

        monkeypatch.setattr(torch.optim.SGD, "step", failing)
        with pytest.raises(KeyboardInterrupt) as caught:
            step(case.batch)
        (note,) = caught.value.__notes__
        moved = [name for name, p in ours.model.named_parameters() if not torch.equal(p, before[name])]
        assert moved
        assert all(name in note for name in moved)
        assert f"{len(moved)} of 6 parameters had been updated" in note
        assert "The optimizer was updating" in note
        assert all(p.grad is None for p in ours.model.parameters())
        monkeypatch.undo()
        theirs = ours.copy()
        assert_equal(case, ours, theirs, step)

    def test_nothing_had_moved(self) -> None:
        class Picky(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(10, 4)
                self.norm = nn.BatchNorm1d(4)

            def forward(self, x: Tensor) -> Tensor:
                hidden: Tensor = self.norm(self.embed(x))
                return hidden.take(x * 0 + x).sum()

        model = Picky()
        step = lowtide.train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.arange(5))
        step(torch.arange(5))
        with pytest.raises((IndexError, RuntimeError)) as caught:
            step(torch.tensor([1, 2, 3, 4, 99]))
        assert "No parameter had been updated" in caught.value.__notes__[0]
        assert "embed" in caught.value.__notes__[0]
        step(torch.arange(5))

    def test_a_failed_micro_step_starts_the_accumulation_anew(self) -> None:
        case = tiled(ZOO["mlp"](), 8)
        ours, theirs = setting(case)
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, accumulate=2)
        step(case.batch)
        bad = (case.batch[0], torch.full_like(case.batch[1], 77))
        with pytest.raises(IndexError) as caught:
            step(bad)
        assert "first micro-step again" in caught.value.__notes__[0]
        assert_equal(case, ours, theirs, step, calls=4, accumulate=2)


@pytest.mark.slow
def test_the_plan_explains_itself() -> None:
    case = tiled(ZOO["bert"](), 8)
    step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "70%", time_limit=1)
    step(case.batch)
    text = step.explain()
    assert text == str(step)
    for word in ("budget", "predicted", "measured", "recomputed", "packed", "bert.encoder.layer.0", "optimal"):
        assert word in text
    fits = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "100%")
    assert "nothing is rewritten" in str(fits)
    assert "live" in str(step.graph)
