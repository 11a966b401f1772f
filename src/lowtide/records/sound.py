"""Do the numbers in a file name anything? Asked once, when a profile or a plan is read: nobody fails on it later."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lowtide.errors import InputError, shown
from lowtide.planning.reading import check_bytes
from lowtide.planning.schedule import instances

if TYPE_CHECKING:
    from lowtide.records.profile import OpRecord, Profile
    from lowtide.records.step_plan import StepPlan


def check_profile(profile: "Profile") -> None:
    """Every rank names an op and every storage is there; InputError where not."""
    ops, storages = range(len(profile.ops)), range(len(profile.storages))
    if not ops:
        raise InputError("it holds no ops")
    for s, storage in enumerate(profile.storages):
        where = f"storage {s}"
        check_bytes(storage.bytes, f"the size of {where}")
        if (storage.created is None or storage.last is None) and not storage.resident:
            raise InputError(f"{where} is not resident, so it must say when it is made and when it ends")
        _within([x for x in (storage.created, storage.last) if x is not None], ops, "rank", where)
        if storage.created is not None and storage.last is not None and storage.created > storage.last:
            raise InputError(f"{where} ends before it is made")
    for rank, op in enumerate(profile.ops):
        _check_op(op, rank, storages)
    for a, made in enumerate(profile.activations):
        where = f"activation {a}"
        _within((made.storage, *made.recomp_srcs), storages, "storage", where)
        uses = (made.created, made.last_fw_use, made.first_bw_use, made.last_bw_use)
        _within((*uses, *made.recomp_ops), ops, "rank", where)
        check_bytes(made.memory_size_B, f"the size of {where}")
        _times((made.inactive_time_ms, made.swap_time_ms, made.recomp_time_ms, made.recompute_ratio), where)
    for p, pack in enumerate(profile.packs):
        _within((pack.storage,), storages, "storage", f"pack {p}")
        check_bytes(pack.bytes, f"the size of pack {p}")


def _check_op(op: "OpRecord", rank: int, storages: range) -> None:
    where = f"op {rank}"
    if op.rank != rank:
        raise InputError(f"{where} says that it is op {shown(op.rank)}")
    touched = (*op.reads, *op.writes, *op.makes, *(() if op.overwrites is None else (op.overwrites,)))
    _within(touched, storages, "storage", where)
    if op.forward is not None:
        _within((op.forward,), range(rank), "forward op", where)
    for what in ("active_mem_B", "peak_mem_B", "output_B", "workspace_B", "alone_B"):
        check_bytes(getattr(op, what), f"{what} of {where}")
    _times((op.runtime_ms, op.runtime_spread_ms), where)


def check_plans(plans: Iterable["StepPlan"]) -> None:
    """Their problems and orders can run, and what is said about them fits; InputError where not."""
    for plan in plans:
        _check_plan(plan)


def _check_plan(plan: "StepPlan") -> None:
    for problem, order in ((plan.problem, plan.order), (plan.exact, plan.exact_order)):
        problem.verify()
        instances(problem, order)
    known = len(plan.problem.ops)
    if len(plan.order) != len(plan.exact_order) or any(
        exact != o and exact < known for o, exact in zip(plan.order, plan.exact_order, strict=True)
    ):
        raise InputError("its order and the one that its prediction is made from are not the same")
    if len(plan.actions) != known:
        raise InputError(f"it says what {len(plan.actions)} ops do, but the problem has {known}")
    check_bytes(plan.budget, "the budget")
    check_bytes(plan.unplanned_peak, "the peak as captured")
    if not plan.unplanned_peak:
        raise InputError("the peak as captured is 0 bytes")
    _times((plan.seconds, plan.signs_time), "the plan")
    storages = range(len(plan.problem.storages))
    signs = dict(plan.signs)
    _within((*plan.activations, *signs, *signs.values()), storages, "storage", "the plan")
    for s in plan.activations:
        makers = plan.problem.producers[s]
        if not makers or plan.problem.ops[makers[0]].optional:
            raise InputError(
                f"{plan.problem.storage_label(s)} counts as an activation, but no op of the program makes it"
            )
    if plan.rewritten and plan.base_time <= 0:
        raise InputError("the step takes no time at all")


def _within(numbers: Iterable[int], there: range, what: str, where: str) -> None:
    for number in numbers:
        if number not in there:
            raise InputError(f"{where} names the {what} {shown(number)}, which is not there")


def _times(values: Iterable[float], where: str) -> None:
    for value in values:
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"a time of {where} must be a number from 0 up, not {shown(value)}")
