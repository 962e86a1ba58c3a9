"""What a record that was measured again came to: a verdict with its reason in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gevo.confirmed import Verdict
from gevo.intervals import Estimate
from gevo.objectives import figures
from gevo.order import change, in_order
from gevo.record import Record

MATERIAL = 0.01  # an exact gain under this share of the base's is no reason of its own to be on a front
KEPT = {"runtime_s": "faster", "peak_bytes": "less memory", "energy_j": "less energy", "error": "less error"}


def judge(
    record: Record,
    base: Record,
    objectives: Sequence[str],
    floors: Mapping[str, float],
    ratio: Estimate | None,
    difference: Estimate | None,
    validation: Estimate | None,
    limits: Mapping[str, float] | None = None,
) -> tuple[Verdict, str]:
    """The verdict on a record by what was measured again; what was not (None) counts as the search found it.

    ratio: of its runtime to the base's. difference: of its error to the base's on the held-out split; validation: the
    same as the search saw it. A gain of runtime is there if its whole interval is below 1, one of error if its whole
    interval is below 0. Memory and modelled energy are exact: they are as the search found them. A record holds if
    all its gains are there, or one that is worth as much as `MATERIAL`, and if it is not clearly over a limit of the
    campaign: the whole interval above it.
    """
    worse = _worse_on_test(difference, validation)
    if worse:
        return Verdict.OVERFITTED, worse
    over = _over(base, ratio, difference, limits or {})
    if over is not None:
        return over
    own, of_base = (figures(r.result, objectives) for r in (record, base))
    changes = change(of_base, own, in_order(floors, objectives))
    gains = {n: -more / b for n, more, b in zip(objectives, changes, of_base, strict=True) if more < 0}
    lost: dict[str, str] = {}
    if "runtime_s" in gains and ratio is not None and ratio.high >= 1.0:
        lost["runtime_s"] = "no faster when timed again"
    if "error" in gains and difference is not None and difference.high >= 0.0:
        gone = difference.value >= 0.0 or not difference.level
        lost["error"] = "no less error on test" if gone else "less error on test by no more than noise"
    small = {name for name in ("peak_bytes", "energy_j") if gains.get(name, 1.0) < MATERIAL}
    kept = [f"{KEPT[n]}{f' by under {MATERIAL:.0%}' if n in small else ''}" for n in gains if n not in lost]
    words = "; ".join([*kept, *lost.values()])
    if not lost or gains.keys() - lost.keys() - small:
        return Verdict.HOLDS, words or "as good as the base"
    overfitted = "runtime_s" not in lost and lost["error"].startswith("no ")
    return (Verdict.OVERFITTED if overfitted else Verdict.LUCKY), words


def _worse_on_test(test: Estimate | None, validation: Estimate | None) -> str:
    """Why the error grew clearly more on test than the search could see; "" if it did not, or nobody can tell."""
    if test is None or validation is None or not test.level:
        return ""
    seen = max(validation.value, 0.0)  # a smaller gain is a gain, so only a loss counts
    margin = math.hypot(test.half, validation.half if seen else 0.0)
    if test.value - seen <= margin:
        return ""
    return f"error {test.value:+.4f} on test, {validation.value:+.4f} on validation"


def _over(
    base: Record, ratio: Estimate | None, difference: Estimate | None, limits: Mapping[str, float]
) -> tuple[Verdict, str] | None:
    """The verdict on a record that is over a limit now which it met in the search; None if it is not clearly so."""
    if difference is not None and "error" in limits:
        allowed = limits["error"] - base.value("error")
        if difference.level and difference.low > allowed:
            return Verdict.OVERFITTED, f"error {difference.value:+.4f} on test, at most {allowed:+.4f}"
    if ratio is not None and "runtime_s" in limits and ratio.low > limits["runtime_s"]:
        return Verdict.LUCKY, f"runtime {ratio.value:.3f}x when timed again, at most {limits['runtime_s']:.3f}x"
    return None
