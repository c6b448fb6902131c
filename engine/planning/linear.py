"""A linear program, with or without integers, as arrays, and its run in HiGHS. Knows nothing of pipelines.

Runs are deterministic: one thread, a fixed seed, and, where a caller must not depend on the machine's speed, a node
limit beside the time limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Maximise ``cost @ x``, lower <= x <= upper, row_lower <= A x <= row_upper; `integer` marks integer columns.

    A is given as triplets (row, column, value); a pair occurs at most once.
    """

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: NDArray[np.bool_]
    row_lower: FloatArray
    row_upper: FloatArray
    rows: IntArray
    columns: IntArray
    values: FloatArray


class LinearStatus(StrEnum):
    OPTIMAL = "optimal"  # best to the gap asked for
    FEASIBLE = "feasible"  # a point, but a limit came before the proof
    INFEASIBLE = "infeasible"  # proven to have no point
    UNKNOWN = "unknown"  # a limit came before any point or proof


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """Best point found (empty without one) and, without integers, its duals. `bound` >= any feasible value."""

    status: LinearStatus
    x: FloatArray
    row_dual: FloatArray
    value: float
    bound: float

    @property
    def found(self) -> bool:
        return self.status in (LinearStatus.OPTIMAL, LinearStatus.FEASIBLE)


class RowBuilder:
    """Collects the triplets of A row block by row block."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[IntArray] = []
        self._columns: list[IntArray] = []
        self._values: list[FloatArray] = []
        self._lower: list[FloatArray] = []
        self._upper: list[FloatArray] = []

    def block(self, lower: FloatArray, upper: FloatArray) -> int:
        """Opens ``len(lower)`` new rows; returns the number of the first."""
        first = self.count
        self.count += len(lower)
        self._lower.append(lower)
        self._upper.append(upper)
        return first

    def add(self, rows: IntArray, columns: IntArray, values: FloatArray) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(values)

    def program(
        self, cost: FloatArray, lower: FloatArray, upper: FloatArray, integer: NDArray[np.bool_]
    ) -> LinearProgram:
        return LinearProgram(
            cost=cost,
            lower=lower,
            upper=upper,
            integer=integer,
            row_lower=np.concatenate(self._lower),
            row_upper=np.concatenate(self._upper),
            rows=np.concatenate(self._rows),
            columns=np.concatenate(self._columns),
            values=np.concatenate(self._values),
        )


def solve_linear(
    program: LinearProgram,
    *,
    gap: float = 0.0,
    time_limit_s: float = math.inf,
    node_limit: int | None = None,
    start: FloatArray | None = None,
) -> LinearSolution:
    """The best point HiGHS finds within the limits. `start` (a whole point) is where it begins; gap inf: any point."""
    solver: Any = _QuietHighs()
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": min(gap, 1e6),
        "mip_abs_gap": 0.0,
        "mip_allow_restart": False,  # HiGHS 1.16 can loop for ever presolving a sub-problem after a restart
        "mip_feasibility_tolerance": 1e-7,
        "primal_feasibility_tolerance": 1e-8,
        "dual_feasibility_tolerance": 1e-8,
    }
    if math.isfinite(time_limit_s):
        options["time_limit"] = max(time_limit_s, 0.01)
    if node_limit is not None:
        options["mip_max_nodes"] = node_limit
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_highs_model(program))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(start)
        solver.setSolution(solution)
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    found = solver.getSolution()
    if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
        none = np.empty(0)
        known = status == highspy.HighsModelStatus.kInfeasible
        return LinearSolution(
            LinearStatus.INFEASIBLE if known else LinearStatus.UNKNOWN, none, none, -math.inf, math.inf
        )
    value = float(info.objective_function_value)
    bound = float(info.mip_dual_bound) if program.integer.any() else value
    return LinearSolution(
        status=LinearStatus.OPTIMAL if status == highspy.HighsModelStatus.kOptimal else LinearStatus.FEASIBLE,
        x=np.array(found.col_value),
        row_dual=np.array(found.row_dual),
        value=value,
        bound=max(bound, value),
    )


class _QuietHighs(highspy.Highs):
    """HiGHS without the callbacks of its Python layer: setting them up prints a banner no option can stop."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()


def _highs_model(program: LinearProgram) -> highspy.HighsLp:
    order = np.lexsort((program.rows, program.columns))
    size = len(program.cost)
    model = highspy.HighsLp()
    model.num_col_ = size
    model.num_row_ = len(program.row_lower)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.cost
    model.col_lower_ = program.lower
    model.col_upper_ = program.upper
    model.row_lower_ = program.row_lower
    model.row_upper_ = program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts = np.zeros(size + 1, dtype=np.int32)
    np.cumsum(np.bincount(program.columns, minlength=size), out=starts[1:])
    model.a_matrix_.start_ = starts
    model.a_matrix_.index_ = program.rows[order].astype(np.int32)
    model.a_matrix_.value_ = program.values[order]
    if program.integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(flag)] for flag in program.integer]
    return model
