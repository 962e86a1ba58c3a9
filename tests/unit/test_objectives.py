import pytest
from synthetic import fake_result

from fitness.job import OBJECTIVES
from fitness.result import Measure, Outcome, Result
from gevo.genome import IDENTITY
from gevo.objectives import bounds, figure, floors, not_finite, point


def result(runtime_s: float = 2e-3, ratio: float = 1.0, spread_s: float = 4e-5, error_spread: float = 0.02) -> Result:
    objectives = {
        "runtime_s": Measure(runtime_s, "clock", spread_s),
        "peak_bytes": Measure(1000, "plan"),
        "energy_j": Measure(0.5, "model:x"),
        "error": Measure(0.1, "accuracy", error_spread),
    }
    return Result(Outcome.OK, objectives=objectives, runtime_ratio=ratio)


def test_runtime_ranks_by_its_ratio_to_the_base() -> None:
    slow_machine, fast_machine = result(4e-3, 0.9), result(1e-3, 1.1)
    assert figure(slow_machine, "runtime_s") == 0.9
    assert point(slow_machine, OBJECTIVES, {}) < point(fast_machine, OBJECTIVES, {})


def test_only_measured_objectives_have_a_noise_floor() -> None:
    assert floors(result(), OBJECTIVES) == {"runtime_s": 0.02, "peak_bytes": 0.0, "energy_j": 0.0, "error": 0.0}
    assert floors(result(spread_s=1.0), ("runtime_s",)) == {"runtime_s": 0.05}


def test_differences_under_the_floor_do_not_rank() -> None:
    floor = floors(result(), OBJECTIVES)
    assert point(result(ratio=1.001), OBJECTIVES, floor) == point(result(ratio=0.999), OBJECTIVES, floor)
    assert point(result(ratio=0.95), OBJECTIVES, floor) < point(result(ratio=1.0), OBJECTIVES, floor)


def test_bounds_are_twice_the_base_and_never_empty() -> None:
    base = fake_result(IDENTITY)
    assert bounds(base, OBJECTIVES)["runtime_s"] == (0.0, 2.0)
    assert bounds(base, OBJECTIVES)["peak_bytes"] == (0.0, 200_000.0)
    assert bounds(Result(Outcome.OK, objectives={"error": Measure(0.0, "a")}), ("error",)) == {"error": (0.0, 1e-3)}


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (result(ratio=float("nan")), "ratio nan"),
        (result(spread_s=float("inf")), "runtime_s is"),
        (Result(Outcome.OK), "missing"),
        (result(ratio=0.0), "ratio of runtime_s to the base is 0.0"),
    ],
)
def test_what_cannot_be_ranked_is_said(broken: Result, text: str) -> None:
    assert text in not_finite(broken, OBJECTIVES)
    assert not_finite(result(), OBJECTIVES) == ""
