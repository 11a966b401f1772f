"""Integer programs of zero-one columns, as HiGHS wants them; one thread, bounded by nodes and by seconds."""

import math
from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

INF = float(highspy.kHighsInf)


@dataclass
class Program:
    """Minimise `cost` over zero-one columns under rows; built column by column, row by row."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def column(self, cost: float, lower: float = 0.0) -> int:
        """A new zero-one column."""
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(1.0)
        return len(self.cost) - 1

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
        unit = max(weights.values(), default=1.0) or 1.0
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
    tolerance: float = 1e-6,
    slack: float = 0.0,
    nodes: int | None = None,
    start: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> Answer:
    """Solve `program` until bound and objective are within `tolerance` of each other, or within `slack`.

    `bound` is a lower bound on every solution however early it stopped.
    """
    scale = max(program.cost, default=0.0) or 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), len(program.starts)
    lp.col_cost_ = np.array(program.cost, dtype=float) / scale
    lp.col_lower_, lp.col_upper_ = np.array(program.lower, dtype=float), np.array(program.upper, dtype=float)
    lp.row_lower_, lp.row_upper_ = np.array(program.row_lower, dtype=float), np.array(program.row_upper, dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*program.starts, len(program.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(program.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(program.values, dtype=float)
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(program.cost)
    solver = highspy.Highs()
    options: dict[str, object] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "time_limit": max(0.1, seconds),
        "mip_rel_gap": tolerance,
        "mip_abs_gap": max(1e-9, slack / scale),
    }
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = [float(x) for x in start]
        solver.setSolution(solution)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
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
