"""What is measured is what is predicted: bytes per op, the peak, and the toy model computed by hand."""

import copy
from collections import deque
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile
from torch.utils import _pytree as pytree

import lowtide
from lowtide.device import meter as meters
from lowtide.device.shim import compiler
from lowtide.errors import InputError
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.dispatch import below_autograd, grad_mode_of, set_grad_mode
from lowtide.profiling.untouched import _bring_back, _put_aside
from lowtide.records.profile import Profile
from lowtide.records.vocabulary import Phase, Role
from tests.equality import Trained, differences
from tests.zoo import ZOO, often


def captured(name: str) -> StepGraph:
    case = ZOO[name]()
    return lowtide.capture(case.model, torch.optim.Adam(case.model.parameters()), case.batch, case.loss)


@pytest.mark.parametrize("name", often(always=["resnet"]))
def test_the_timeline_peaks_where_a_plain_run_does(name: str) -> None:
    profile = lowtide.profile(captured(name), runs=1)
    assert profile.peak_B == profile.step_peak_B, "to the byte, on a CPU"
    for op, *parts in zip(profile.ops, *profile.role_bytes().values(), strict=True):
        assert sum(parts) == op.active_mem_B, "roles add up"
        assert op.peak_mem_B == op.active_mem_B + op.workspace_B
        assert op.runtime_ms > 0


def toy(width: int = 8) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    model = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
    )
    return model, (torch.randn(4, width), torch.randint(0, width, (4,)))


def toy_profile() -> Profile:
    model, batch = toy()
    graph = lowtide.capture(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1, fused=True),
        batch,
        lambda m, b: F.cross_entropy(m(b[0]), b[1]),
    )
    return lowtide.profile(graph, runs=1)


def test_the_toy_has_three_forward_and_three_backward_layers() -> None:
    rows = toy_profile().by_layer()
    assert [(row.layer, row.phase) for row in rows if row.phase is not Phase.OPTIMIZER] == [
        ("0", Phase.FORWARD),
        ("2", Phase.FORWARD),
        ("4", Phase.FORWARD),
        ("4", Phase.BACKWARD),
        ("2", Phase.BACKWARD),
        ("0", Phase.BACKWARD),
    ]


def test_the_memory_curve_of_the_toy_is_the_one_computed_by_hand() -> None:
    """Three layers of width w = 8, batch b = 4, float32, SGD without state; one value per op that takes time."""
    profile = toy_profile()
    w, b = 8, 4
    weight, bias, scalar = w * w * 4, w * 4, 4
    h = b * w * 4  # what a layer or a ReLU makes
    layer = weight + bias
    resident = 3 * layer + h + b * 8  # parameters, inputs, labels
    forward = [
        h,  # layer 0
        2 * h,  # ReLU, beside its input
        2 * h,  # layer 2, beside the first ReLU, which backward needs
        3 * h,  # ReLU
        3 * h,  # layer 4, beside two ReLUs
        4 * h,  # log_softmax, beside the logits
        3 * h + 2 * scalar,  # the loss, and the weight that normalises it
    ]
    backward = [
        3 * h + 3 * scalar,  # where backward starts: one
        4 * h + 3 * scalar,  # nll_loss
        5 * h + scalar,  # log_softmax: its output, its gradient in and out; the loss stays to the end
        4 * h + scalar,  # layer 4: gradient of its input
        4 * h + weight + scalar,  # of its weight
        4 * h + layer + scalar,  # of its bias
        4 * h + layer + scalar,  # ReLU: two ReLUs, its gradient in and out
        3 * h + layer + scalar,  # layer 2, the second ReLU is gone
        3 * h + layer + weight + scalar,
        3 * h + 2 * layer + scalar,
        3 * h + 2 * layer + scalar,  # ReLU
        h + 2 * layer + weight + scalar,  # layer 0 needs no gradient of its input
        h + 3 * layer + scalar,
    ]
    optimizer = [3 * layer + scalar] * 6  # one optimizer.step(): the gradients die together
    measured = [op.active_mem_B - resident for op in profile.ops if not op.is_view]
    assert measured == forward + backward + optimizer
    assert all(op.peak_mem_B == op.active_mem_B for op in profile.ops), "none of these ops needs a workspace"


@pytest.mark.parametrize("name", often(["convnet", "bert", "lstm"], 1))
def test_memory_per_op_is_what_torch_profiler_records(name: str) -> None:
    graph = captured(name)
    profile = lowtide.profile(graph, runs=1)
    pure = [op for op in graph.ops if op.makes and not op.is_effect and op.overwrites is None]
    sample = pure[::3]
    shapes = {node.name: node.meta.get("val") for node in graph.graph.nodes}
    compared = 0
    for op in sample:
        if any(not isinstance(shapes[n.name], torch.Tensor) for n in op.node.all_input_nodes):
            continue
        if not all(shapes[n.name].is_floating_point() for n in op.node.all_input_nodes):
            continue
        args = torch.fx.node.map_arg(op.node.args, lambda n: _real(shapes[n.name]))
        kwargs = torch.fx.node.map_arg(op.node.kwargs, lambda n: _real(shapes[n.name]))
        with below_autograd():
            set_grad_mode(grad_mode_of(op.phase))
            op.node.target(*args, **kwargs)  # type: ignore[operator]
            with torch_profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorder:
                made = op.node.target(*args, **kwargs)  # type: ignore[operator]
        now = peak = 0
        for change in meters.allocations(recorder):
            now += change
            peak = max(peak, now)
        del made
        record = profile.ops[op.rank]
        assert (now, peak) == (record.output_B, record.output_B + record.workspace_B), op
        compared += 1
    assert compared > 3


def _real(fake: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
    torch.empty(0, dtype=fake.dtype).set_(made.untyped_storage()).uniform_(0.1, 0.9)  # expanded ones have one element
    return made


@pytest.mark.parametrize("before", [0, 1], ids=["fresh", "with state"])
def test_profiling_leaves_everything_as_it_was(before: int) -> None:
    case = ZOO["convnet"]()
    ours = Trained(case.model, torch.optim.Adam(case.model.parameters(), lr=0.1), torch.zeros(()))
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    for _ in range(before):
        graph(case.batch)
    theirs = ours.copy()
    theirs.loss = ours.loss
    first = next(ours.model.parameters())
    first.grad = gradient = torch.ones_like(first)
    generator = torch.get_rng_state()
    lowtide.profile(graph, runs=1)
    assert first.grad is gradient
    first.grad = None
    assert list(differences(ours, theirs)) == []
    assert len(ours.optimizer.state) == len(theirs.optimizer.state)
    assert torch.equal(generator, torch.get_rng_state())


def test_storages_can_change_their_size_afterwards() -> None:
    """FSDP2 empties whole parameters and fills them again; torch forbids that where numpy has seen the memory."""
    data, empty = torch.arange(6.0).view(torch.uint8), torch.empty(0, dtype=torch.uint8)
    with TemporaryFile() as file:
        hosts = [_put_aside(x, file) for x in (data, empty)]
        data.zero_()
        file.seek(0)
        for x, host in zip((data, empty), hosts, strict=True):
            _bring_back(x, host, file)
    assert data.view(torch.float32).tolist() == list(range(6))
    data.untyped_storage().resize_(0)


def test_state_comes_back_also_when_an_op_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, torch.optim.Adam(case.model.parameters()), case.batch, case.loss)
    before = [p.clone() for p in case.model.parameters()]

    def stop(done: int, total: int, what: str) -> None:
        if done > 1.5 * len(graph.ops):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lowtide.profile(graph, progress=stop)
    assert all(torch.equal(a, b) for a, b in zip(before, case.model.parameters(), strict=True))
    assert graph.optimizer is not None
    assert not graph.optimizer.state
    graph(case.batch)


def test_it_saves_and_loads_back_equal(tmp_path: Path) -> None:
    profile = toy_profile()
    profile.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json") == profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "not a lowtide-profile/3"),
        ('{"format": "lowtide-profile/3"}', "damaged"),
        (None, "cannot"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        Profile.load(path)


def test_updates_know_the_aten_ops_inside() -> None:
    profile = lowtide.profile(captured("mlp"), runs=1)
    updates = [op for op in profile.ops if op.phase is Phase.OPTIMIZER]
    assert len(updates) == 6
    for op in updates:
        names = {inner.op for inner in op.inner}
        assert {"aten.lerp_.Scalar", "aten.addcmul_.default", "aten.addcdiv_.default"} <= names
        assert op.role is Role.PARAMETER


def test_the_metrics_of_an_activation() -> None:
    profile = toy_profile()
    times = [op.runtime_ms for op in profile.ops]
    assert [a.memory_size_B for a in profile.activations] == [128, 128, 128, 4]
    first, second, *_ = profile.activations
    assert first.inactive_time_ms == pytest.approx(sum(times[first.last_fw_use + 1 : first.first_bw_use]))
    # The second ReLU is made again from the first one: a linear layer and a ReLU.
    assert second.recomp_srcs == (first.storage,)
    assert [profile.ops[rank].op for rank in second.recomp_ops] == ["aten.addmm.default", "aten.relu.default"]
    assert second.recomp_time_ms == pytest.approx(sum(times[rank] for rank in second.recomp_ops))
    assert second.recomp_memory_B == 256
    assert second.recompute_ratio == pytest.approx(128 / second.recomp_time_ms)
    assert second.swap_time_ms >= min(max(s.out_ms, s.in_ms) for s in profile.transfer)


class Heavy(torch.optim.Optimizer):
    """Somebody else's optimizer, with state that only a step shows."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Momentum, kept twice."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state["twice"] = torch.zeros(2, *p.shape)
                    state["twice"].add_(p.grad)
                    p.sub_(state["twice"][0], alpha=0.1)


def test_the_state_of_a_foreign_optimizer_is_found_by_running_it() -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, Heavy(case.model.parameters()), case.batch, case.loss)
    profile = lowtide.profile(graph, runs=1)
    parameters = sum(p.numel() * 4 for p in case.model.parameters())
    assert sum(s.bytes for s in profile.storages if s.role is Role.OPTIMIZER_STATE) == 2 * parameters
    assert profile.resident_B == graph.resident_bytes + 2 * parameters
    assert profile.peak_B == profile.step_peak_B
    assert graph.optimizer is not None
    assert not graph.optimizer.state


def test_counting_the_runs() -> None:
    model, batch = toy()
    graph = lowtide.capture(
        model, torch.optim.SGD(model.parameters(), lr=0.1), batch, lambda m, b: F.cross_entropy(m(b[0]), b[1])
    )
    seen: list[tuple[int, int]] = []
    lowtide.profile(graph, warmup=2, runs=2, progress=lambda done, total, what: seen.append((done, total)))
    assert seen == [(k + 1, 4 * len(graph.ops)) for k in range(4 * len(graph.ops))]
    with pytest.raises(InputError, match="at least one"):
        lowtide.profile(graph, runs=0)


def test_without_a_compiler_the_profiler_counts_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "compiler", lambda: None)
    profile = toy_profile()
    assert profile.memory_source == "torch.profiler"
    monkeypatch.undo()
    if compiler() is None:
        pytest.skip("no C++ compiler here, nothing to compare with")
    exact = toy_profile()
    assert exact.memory_source == "allocator shim"
    assert [op.peak_mem_B for op in profile.ops] == [op.peak_mem_B for op in exact.ops]


class Averaging(torch.optim.Optimizer):
    """Somebody else's optimizer, which keeps what it needs wherever it likes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": torch.tensor(0.1)})
        self.inner = torch.optim.Adam(model.parameters())
        self.average = [p.detach().clone() for p in model.parameters()]
        self.twin = copy.deepcopy(model)
        self.notes: dict[str, Any] = {"count": 0, "norms": [torch.zeros(1)], "recent": deque([0], maxlen=2)}
        self.seen: set[int] = set()
        self.noise = torch.Generator().manual_seed(3)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Adam, and notes about it."""
        self.inner.step()
        for average, twin, p in zip(
            self.average, self.twin.parameters(), self.inner.param_groups[0]["params"], strict=True
        ):
            average.lerp_(p, 0.5)
            twin.add_(p)
            p.add_(torch.randn(p.shape, generator=self.noise), alpha=1e-3)
        self.param_groups[0]["lr"] *= 0.5
        self.notes["count"] += 1
        self.notes["norms"][0] += 1
        self.notes["norms"].append(torch.ones(1))
        self.notes["recent"].append(self.notes["count"])
        self.notes["new"] = True
        self.seen.add(self.notes["count"])
        self.first = "made by the first step"


@pytest.mark.parametrize("before", [0, 1], ids=["fresh", "with state"])
def test_profiling_leaves_what_an_optimizer_keeps_outside_of_its_state(before: int) -> None:
    case = ZOO["mlp"]()
    optimizer = Averaging(case.model)
    graph = lowtide.capture(case.model, optimizer, case.batch, case.loss)
    for _ in range(before):
        graph(case.batch)

    def everything() -> list[Any]:
        kept = [optimizer.average, dict(optimizer.twin.named_parameters()), optimizer.notes, optimizer.param_groups]
        return [list(vars(optimizer)), optimizer.seen, *pytree.tree_leaves([*kept, dict(optimizer.inner.state)])]

    expected, held, noise = copy.deepcopy(everything()), everything(), optimizer.noise.get_state()
    lowtide.profile(graph, runs=1)
    for new, old, same in zip(everything(), expected, held, strict=True):
        assert torch.equal(new, old) if isinstance(old, torch.Tensor) else new == old
        assert new is same or not isinstance(old, torch.Tensor), "the tensors are the user's own"
    assert torch.equal(optimizer.noise.get_state(), noise)
