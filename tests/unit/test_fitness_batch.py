"""The book of a batch: order, equal variants, second attempts."""

from __future__ import annotations

from fitness.batch import Batch
from fitness.result import Outcome, Result


def result(fingerprint: str, detail: str = "") -> Result:
    return Result(Outcome.OK, fingerprint=fingerprint, detail=detail)


def answered(fingerprint: str, detail: str = "") -> Result:
    return Result(Outcome.OK, fingerprint=fingerprint, detail=detail, answered_by="fingerprint")


def test_results_come_in_order_whatever_the_order_of_work():
    batch = Batch(3, {})
    assert [batch.next() for _ in range(4)] == [0, 1, 2, None]
    for index in (2, 0, 1):
        assert not batch.done
        assert batch.answer(index, str(index)) is None
        assert batch.finish(index, result(str(index))) == [(index, result(str(index)))]
    assert batch.done
    assert batch.results() == [result("0"), result("1"), result("2")]


def test_known_variant_is_answered_at_once():
    batch = Batch(1, {"a": result("a", "known")})
    batch.next()
    assert batch.answer(0, "a") == [(0, answered("a", "known"))]
    assert batch.answered(0) and batch.done


def test_variant_in_flight_is_waited_for():
    batch = Batch(2, {})
    batch.next(), batch.next()
    assert batch.answer(0, "a") is None
    assert batch.answer(1, "a") == []
    assert not batch.done
    assert batch.finish(0, result("a")) == [(0, result("a")), (1, answered("a"))]
    assert batch.results() == [result("a"), answered("a")]


def test_lowest_index_has_the_evaluation_even_if_another_came_first():
    batch = Batch(3, {})
    for _ in range(3):
        batch.next()
    assert batch.answer(2, "a") is None
    assert batch.answer(1, "b") is None
    assert batch.answer(0, "a") == []
    assert batch.finish(2, result("a")) == [(0, result("a")), (2, answered("a"))]
    batch.finish(1, result("b"))
    assert batch.results() == [result("a"), result("b"), answered("a")]


def test_lowest_index_has_the_evaluation_even_if_it_came_after_the_end():
    batch = Batch(2, {})
    batch.next(), batch.next()
    assert batch.answer(1, "a") is None
    batch.finish(1, result("a"))
    assert batch.answer(0, "a") == [(0, answered("a"))]
    assert batch.results() == [result("a"), answered("a")]


def test_lost_job_is_tried_twice_and_keeps_its_lead():
    batch = Batch(2, {})
    assert batch.next() == 0
    assert batch.answer(0, "a") is None
    assert batch.retry(0)
    assert batch.next() == 0
    assert batch.answer(0, "a") is None
    assert not batch.retry(0)
    assert batch.next() == 1


def test_empty_batch_is_done():
    assert Batch(0, {}).done
    assert Batch(0, {}).results() == []
