"""The measurement put together: what the engine's plan promises, the search around it, the scenarios beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from framepool.benchmarks import MeasurementError
from framepool.benchmarks.slo.offer import stream_rates
from framepool.benchmarks.slo.run import Cameras, Run, Window, offering, remove_leftovers, run_once
from framepool.benchmarks.slo.scenarios import run_offline, run_scenario
from framepool.benchmarks.slo.search import Search
from framepool.benchmarks.slo.under_test import UnderTest
from framepool.engine.errors import CapacityError

SCENARIO_SHARE = 0.8
"""Of the largest load: at which scenarios run."""
STEP_SHARE = 0.02
MOST_TIMES_PLAN = 3.0
"""Loads are looked for up to so many times what the plan can do."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`load_fps` above 0: only that load is run. `step_fps` 0: chosen by what the plan can do."""

    attainment: float
    load_fps: float
    step_fps: float
    runs: int


class Harness:
    """Makes runs on one engine and keeps them, in order."""

    def __init__(self, engine: UnderTest, cameras: Cameras, window: Window, wanted: Wanted) -> None:
        self._engine = engine
        self._cameras = cameras
        self._window = window
        self._wanted = wanted
        self._runs: list[Run] = []
        remove_leftovers(engine.client)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs)

    def search(self, tell: Tell) -> tuple[float, tuple[Run, ...]]:
        """The largest load that holds (0.0: none) and its runs; with a load given, that one, whatever comes of it."""
        wanted = self._wanted
        if wanted.load_fps:
            made = tuple(self._run(wanted.load_fps, tell) for _ in range(wanted.runs))
            return wanted.load_fps, made
        capacity_fps = self._capacity_fps()
        step_fps = wanted.step_fps or max(0.1, round(STEP_SHARE * capacity_fps, 1))
        search = Search(lambda step: self._run(step * step_fps, tell), wanted.attainment, wanted.runs)
        most = max(1, round(MOST_TIMES_PLAN * capacity_fps / step_fps))
        best = search.largest(max(1, round(0.9 * capacity_fps / step_fps)), most)
        return best * step_fps, tuple(search.runs.get(best, ()))

    def scenarios(self, names: Sequence[str], best_fps: float, tell: Tell) -> tuple[Run, ...]:
        """Runs of `names` at a share of the largest load (of none where that is 0)."""
        engine, window = self._engine, self._window
        found = []
        for name in names:
            tell(name)
            if name == "offline":
                files = max(1, len(engine.client.devices()))
                found.append(run_offline(engine.client, self._cameras, files, window, engine.pid))
            elif best_fps:
                load_fps = SCENARIO_SHARE * best_fps
                found.append(
                    run_scenario(
                        name, engine.client, self._cameras, load_fps, window, engine.pid, self._wanted.attainment
                    )
                )
        return tuple(found)

    def _run(self, load_fps: float, tell: Tell) -> Run:
        tell(f"{load_fps:.1f} fps in {len(stream_rates(load_fps, self._cameras.fps))} streams")
        run = run_once(self._engine.client, self._cameras, load_fps, self._window, self._engine.pid)
        self._runs.append(run)
        return run

    def _capacity_fps(self) -> float:
        """What the engine's plan can do of this model and SLO, from the plan for one camera."""
        with offering(self._engine.client, self._cameras) as offered:
            try:
                offered.add(self._cameras.fps)
            except CapacityError as error:
                raise MeasurementError(f"the engine takes not one such camera: {error}") from error
            plan = self._engine.client.plan().plan
        capacity_fps = sum(pipeline.capacity_fps for pipeline in plan.of_model(self._cameras.model))
        if not capacity_fps:
            raise MeasurementError(
                f"slo {self._cameras.slo_ms:g} ms: no device can run {self._cameras.model} in that time; "
                "see `framepool models list` for latencies"
            )
        return capacity_fps
