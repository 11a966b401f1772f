"""Integer programs of zero-one columns, as HiGHS wants them; one thread, cut where a count is reached.

HiGHS repeats itself exactly as long as no clock cuts it. So a linear program is cut by its iterations, and an integer
one by how often HiGHS asks whether it should stop, which it does at fixed places of its algorithm. How much work that
was is known afterwards, from the iterations.
"""

import math
import time
from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, charge

INF = float(highspy.kHighsInf)


def _work(rows: int, entries: int, iterations: int, asked: int, *, integer: bool) -> float:
    """Seconds of work, about, by rows, entries, simplex iterations and times that HiGHS asked to go on.

    Fitted to some two thousand solves.
    """
    by = SETTINGS.charges
    if not integer:
        return by.solve + entries * (by.linear_entry + by.linear_pivot * iterations)
    beyond = max(0.0, iterations - by.root * rows)
    each = by.pivot * entries + by.pivot_row * rows
    return by.solve + each * iterations + by.beyond_root * beyond + (by.ask + by.ask_entry * entries) * asked


def _most(entries: int, seconds: float, *, integer: bool) -> int:
    """Iterations, or times to be asked, within `seconds`."""
    by = SETTINGS.charges
    if not integer:
        return max(1, int(seconds / (by.linear_iteration + by.linear_pivot * entries)))
    ask, entry = by.asks
    return max(SETTINGS.fewest_asks, int(seconds / (ask + entry * entries)))


@dataclass
class Program:
    """Minimise `cost` over columns, most of them zero-one, under rows; built column by column, row by row."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    """The columns that need not be whole numbers."""

    def column(self, cost: float, lower: float = 0.0) -> int:
        """A new zero-one column."""
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(1.0)
        return len(self.cost) - 1

    def amount(self, cost: float) -> int:
        """A new column of any amount from zero on."""
        column = self.column(cost)
        self.upper[column] = INF
        self.amounts.append(column)
        return column

    def cover(self, plus: list[int], minus: int | None, least: float) -> None:
        """Row: the sum of `plus` less `minus` is at least `least`."""
        self.starts.append(len(self.columns))
        self.columns.extend(plus)
        self.values.extend([1.0] * len(plus))
        if minus is not None:
            self.columns.append(minus)
            self.values.append(-1.0)
        self.row_lower.append(least)
        self.row_upper.append(INF)

    def at_most(self, weights: dict[int, float], most: float) -> None:
        """Row: the weighted sum is at most `most`; weights are scaled to one."""
        unit = max(map(abs, weights.values()), default=1.0) or 1.0
        self.starts.append(len(self.columns))
        self.columns.extend(weights)
        self.values.extend(w / unit for w in weights.values())
        self.row_lower.append(-INF)
        self.row_upper.append(most / unit)


@dataclass(frozen=True)
class Answer:
    """What HiGHS found: no `values` where it found nothing, an infinite `bound` where nothing exists."""

    bound: float
    objective: float
    values: NDArray[np.float64] | None
    finished: bool
    """The bound meets the objective within the tolerance asked for."""


def solve(
    program: Program,
    *,
    seconds: float,
    integer: bool = True,
    tolerance: float = SETTINGS.gap,
    slack: float = 0.0,
) -> Answer:
    """Solve `program` until bound and objective are within `tolerance` of each other, or within `slack`.

    `seconds` is work, as in `work.py`, and is charged; what is far too large for it is not begun. `bound` is a lower
    bound on every solution however early it stopped.
    """
    meter = allowance().meter
    rows, entries = len(program.starts), len(program.columns)
    through_the_root = _work(rows, entries, rows // 2, 2, integer=integer)
    if through_the_root > max(SETTINGS.worth_solving, 2 * seconds) or meter.late():
        return Answer(0.0, math.inf, None, False)
    scale = max(program.cost, default=0.0) or 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), rows
    lp.col_cost_ = np.array(program.cost, dtype=float) / scale
    lp.col_lower_, lp.col_upper_ = np.array(program.lower, dtype=float), np.array(program.upper, dtype=float)
    lp.row_lower_, lp.row_upper_ = np.array(program.row_lower, dtype=float), np.array(program.row_upper, dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*program.starts, len(program.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(program.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(program.values, dtype=float)
    if integer:
        kinds = [highspy.HighsVarType.kInteger] * len(program.cost)
        for column in program.amounts:
            kinds[column] = highspy.HighsVarType.kContinuous
        lp.integrality_ = kinds
    solver = highspy.Highs()
    most = _most(entries, seconds, integer=integer)
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", min(INF, max(SETTINGS.solve_least, meter.deadline - time.perf_counter())))
    solver.setOptionValue("mip_rel_gap", tolerance)
    solver.setOptionValue("mip_abs_gap", max(SETTINGS.smallest, slack / scale))
    solver.passModel(lp)
    asked = 0

    def ask(event: highspy.HighsCallbackEvent) -> None:
        nonlocal asked
        asked += 1
        if asked >= most:
            event.interrupt()

    if integer:
        solver.cbMipInterrupt += ask
    else:
        solver.setOptionValue("simplex_iteration_limit", most)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    charge(_work(rows, entries, max(0, info.simplex_iteration_count), asked, integer=integer))
    if status == highspy.HighsModelStatus.kTimeLimit:
        meter.cut = True
    if status == highspy.HighsModelStatus.kInfeasible:
        return Answer(math.inf, math.inf, None, True)
    finished = status == highspy.HighsModelStatus.kOptimal
    if not integer:
        value = max(0.0, float(info.objective_function_value)) if finished else 0.0
        return Answer(value * scale, value * scale, None, finished)
    bound = max(0.0, float(info.mip_dual_bound)) * scale
    objective = float(info.objective_function_value)
    values = np.array(solver.getSolution().col_value, dtype=float)
    if (
        len(values) != len(program.cost)
        or info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible
    ):
        return Answer(bound, math.inf, None, finished)
    return Answer(bound, objective * scale, values, finished)
