import json

import pytest

from gevo.archive import SIZE, Archive, Member
from gevo.credit import Credit
from gevo.evidence import EDITS, Evidence
from gevo.genome import IDENTITY, Genome


def test_rates_follow_what_paid_and_none_dies() -> None:
    credit = Credit({"a": 2.0, "b": 1.0, "c": 1.0})
    assert credit.rates == pytest.approx({"a": 0.5, "b": 0.25, "c": 0.25})
    for _ in range(200):
        credit.add("b", 1.0)
        credit.add("a", 0.0)
        credit.add("unknown", 1.0)
    rates = credit.rates
    assert sum(rates.values()) == pytest.approx(1.0)
    assert rates["b"] > 0.5 and rates["a"] >= 0.125  # a quarter of its first share
    again = Credit({"a": 2.0, "b": 1.0, "c": 1.0})
    again.restore(json.loads(json.dumps(credit.state())))
    assert again.rates == rates


def test_what_paid_once_is_forgotten() -> None:
    credit = Credit({"a": 1.0, "b": 1.0})
    for _ in range(50):
        credit.add("a", 1.0)
        credit.add("b", 0.0)
    before = credit.rates["a"]
    for _ in range(300):
        credit.add("a", 0.0)
        credit.add("b", 1.0)
    assert before > 0.7 and credit.rates["a"] < 0.3


def test_effects_are_means_over_contexts() -> None:
    evidence = Evidence()
    evidence.saw("x", [], (-0.1, 0.2), 1)
    evidence.saw("x", ["y"], (-0.3, 0.0), 2)
    evidence.saw("x", ["z"], None, 3)
    effect = evidence.effects["x"]
    assert (effect.seen, effect.failed) == (3, 1) and effect.change == pytest.approx((-0.2, 0.1))
    assert effect.worth((1.0, 0.0)) == pytest.approx(0.2)
    assert effect.worth((0.0, 1.0)) == pytest.approx(-0.1)
    assert evidence.good() == ["x"]


def test_an_edit_that_does_better_beside_another_is_linked_with_it() -> None:
    evidence = Evidence()
    evidence.saw("x", [], None, 1)  # fails alone
    evidence.saw("x", ["y"], (-0.2, 0.0), 2)
    assert evidence.linked("x", "y") and evidence.linked("y", "x") and evidence.partners("y") == {"x"}
    evidence.saw("a", [], (-0.1, 0.0), 1)
    evidence.saw("a", ["b"], (-0.11, 0.0), 2)  # as good as alone: additive
    assert not evidence.linked("a", "b")
    evidence.needs("p", ["q", "r", "s"])  # one of three; which one is not known yet
    assert not evidence.linked("p", "q")
    evidence.needs("p", ["q", "t"])
    assert evidence.linked("p", "q") and not evidence.linked("p", "s")
    again = Evidence()
    again.restore(json.loads(json.dumps(evidence.state())))
    assert again.state() == evidence.state() and again.partners("q") == evidence.partners("q")


def test_neutral_is_what_never_did_anything() -> None:
    evidence = Evidence()
    evidence.saw_neutral("x")
    assert evidence.neutral("x") and not evidence.neutral("y")
    evidence.saw("x", ["y"], (0.1, 0.0), 2)
    assert not evidence.neutral("x")
    evidence.saw_neutral("x")
    assert not evidence.neutral("x")


def test_the_least_promising_edits_are_forgotten_first() -> None:
    evidence = Evidence()
    for i in range(EDITS + 50):
        evidence.saw(f"e{i}", [], (-0.01 * (i % 100 == 0), 0.1), i)
    assert len(evidence.effects) == EDITS
    assert set(evidence.good()) == {f"e{i}" for i in range(0, EDITS + 50, 100)}


def member(*point: float, over: float = 0.0, genome: Genome = IDENTITY) -> Member:
    return Member(genome, point, over)


def test_the_archive_holds_what_no_other_dominates() -> None:
    archive = Archive()
    assert archive.add(member(1.0, 1.0)) and archive.add(member(0.5, 2.0))
    assert not archive.add(member(1.0, 2.0)) and not archive.add(member(1.0, 1.0))
    assert not archive.add(member(0.0, 0.0, over=0.1))
    assert archive.add(member(0.5, 1.0))
    assert [m.point for m in archive.members] == [(0.5, 1.0)]
    assert archive.hypervolume([(0.0, 2.0)] * 2) == pytest.approx(0.75 * 0.5)


def test_of_equal_points_the_shortest_genome_stays() -> None:
    archive = Archive([member(1.0, genome=Genome(storage="f16"))])
    assert not archive.add(member(1.0)) and archive.members[0].genome == IDENTITY


def test_a_full_archive_keeps_its_ends() -> None:
    archive = Archive()
    for i in range(3 * SIZE):
        archive.add(member(float(i), float(3 * SIZE - i)))
    points = {m.point for m in archive.members}
    assert len(points) == SIZE and {(0.0, 3.0 * SIZE), (3.0 * SIZE - 1, 1.0)} <= points
