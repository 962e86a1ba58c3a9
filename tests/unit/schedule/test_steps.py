"""Each rule of the replay, by a line that keeps it and one that breaks it."""

from __future__ import annotations

import pytest
from test_problem import HIDDEN, LOSS, WEIGHT, small

from mlir_passes.schedule.steps import Kind, ScheduleError, Step, Usage, keep_all, replay, stored_state

USE, SPARE, UPDATE = (Step(Kind.COMPUTE, number) for number in range(3))


def on(tensor: int, *kinds: Kind) -> list[Step]:
    return [Step(kind, tensor) for kind in kinds]


def test_keep_all_takes_what_is_there() -> None:
    assert replay(small(), keep_all(small()), 7) == Usage(14.0, 3.0, 7, 0, 0, 0, 0)
    with pytest.raises(ScheduleError, match="7 bytes, the budget is 6"):
        replay(small(), keep_all(small()), 6)


def test_recomputed_and_paged_lines_are_counted() -> None:
    twice = [USE, SPARE, *on(HIDDEN, Kind.FREE), USE, UPDATE]
    assert replay(small(), twice).remats == 1
    assert replay(small(), twice).energy_j == 16.0
    paged = [USE, *on(HIDDEN, Kind.OUT), SPARE, *on(HIDDEN, Kind.FREE, Kind.IN), UPDATE]
    usage = replay(small(), paged)
    assert (usage.pages_out, usage.pages_in, usage.paged_bytes) == (1, 1, 2)


def test_state_on_the_store_is_written_back() -> None:
    line = [*on(WEIGHT, Kind.IN), USE, SPARE, UPDATE, *on(WEIGHT, Kind.OUT, Kind.FREE)]
    assert stored_state(small(), line) == {WEIGHT}
    assert replay(small(), line).paged_bytes == 4
    with pytest.raises(ScheduleError, match="weight is not where it belongs"):
        replay(small(), line[:-2])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ([SPARE, USE, UPDATE], "hidden is not in memory"),
        ([USE, SPARE, UPDATE, UPDATE], "cannot run twice"),
        ([USE, SPARE, UPDATE, *on(HIDDEN, Kind.FREE), USE], "weight was overwritten before"),
        ([USE, SPARE, *on(HIDDEN, Kind.FREE, Kind.IN), UPDATE], "the store does not have it"),
        ([USE, SPARE, *on(HIDDEN, Kind.FREE, Kind.FREE), UPDATE], "it is not in memory"),
        ([USE, SPARE, UPDATE, *on(LOSS, Kind.FREE)], "loss is not where it belongs"),
        ([USE, SPARE], "update did not run"),
        ([USE, *on(HIDDEN, Kind.OUT, Kind.FREE, Kind.OUT_DONE), SPARE, UPDATE], "is on its way"),
        ([USE, *on(HIDDEN, Kind.OUT_DONE), SPARE, UPDATE], "no such transfer"),
        ([*on(WEIGHT, Kind.OUT), USE, SPARE, UPDATE, *on(WEIGHT, Kind.OUT_DONE)], "overwritten while"),
        ([USE, *on(HIDDEN, Kind.OUT), SPARE, UPDATE, *on(WEIGHT, Kind.OUT, Kind.OUT_DONE)], "never ends"),
    ],
)
def test_a_line_that_breaks_a_rule_is_refused(line: list[Step], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        replay(small(), line)
