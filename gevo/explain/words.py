"""What an edit does, in words, and what that means where it is a case that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gevo.explain.names import GRADIENT, NEW, PARAMETER, UPDATE, Names
from mlir_passes.edits import Edit

CONTRACTIONS = ("product", "convolution", "depthwise convolution")
REDUCTIONS = ("sum", "maximum over a loop", "minimum over a loop", "reduction", "pooling")


@dataclass(frozen=True)
class Reading:
    """What edits of some kinds mean where their target has one of these roles, or is made by one of these kinds of op
    (any where none is given). normalised: only where the parameter's update divides by the size of its gradient.

    text: with {name} of the parameter or the op, {factor}, and {more}, {larger}, {faster} by whether the factor is
    above 1.
    """

    edits: tuple[str, ...]
    text: str
    roles: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    normalised: bool | None = None


# The first that fits is said. Fields of edits that it looks at: `site` or `value` (the target), `factor`, `element`.
READINGS: tuple[Reading, ...] = (
    Reading(("scale",), "the update divides by the gradient's size, so this changes little", (GRADIENT,), (), True),
    Reading(("scale",), "a {larger} learning rate for {name}", (GRADIENT, UPDATE), (), None),
    Reading(("scale",), "{name} {grows} with every step", (NEW,)),
    Reading(("scale",), "{name} counts {more}", (PARAMETER,)),
    Reading(("scale",), "its outputs are {larger}", (), CONTRACTIONS),
    Reading(("delete", "replace", "rewire"), "{name} learns from something else than its gradient", (GRADIENT, UPDATE)),
    Reading(("delete", "skip"), "{name} is set by something else than its update", (NEW,)),
    Reading(("delete", "skip"), "no nonlinearity there", (), ("relu",)),
    Reading(("delete", "skip"), "a residual is left out", (), ("residual addition",)),
    Reading(("delete", "skip"), "a layer is left out", (), CONTRACTIONS),
    Reading(("delete", "skip"), "no bias or shift there", (), ("addition",)),
    Reading(("delete", "skip"), "one operation less", ()),
    Reading(("shrink",), "a gradient from part of its terms", (GRADIENT,)),
    Reading(("shrink",), "less work: part of its channels or taps is left out", (), CONTRACTIONS),
    Reading(("shrink",), "a statistic of part of the values", (), REDUCTIONS),
    Reading(("cast",), "it is stored narrower: less memory, and rounded"),
    Reading(("copy",), "computed a second time for one reader"),
    Reading(("body_scale",), "a {larger} learning rate for {name}", (UPDATE, GRADIENT)),
)


def sentences(edit: Edit, names: Names) -> tuple[str, str]:
    """What an edit does, with sites, and what it means, "" where no reading fits."""
    return edit.words(names.name), reading(edit, names)


def reading(edit: Edit, names: Names) -> str:
    """The first of `READINGS` that fits, filled in."""
    data = edit.to_json()
    target = target_of(data)
    role, parameter = names.role(target)
    kind = names.kind(target)
    for one in READINGS:
        if edit.kind not in one.edits or (one.roles and role not in one.roles) or (one.ops and kind not in one.ops):
            continue
        if one.normalised is not None and names.normalised(parameter) != one.normalised:
            continue
        return one.text.format(name=parameter or names.name(target), **_by_factor(data))
    return ""


def target_of(data: Mapping[str, Any]) -> str:
    """The site or value that an edit is about."""
    return str(data.get("value") or data.get("site") or "")


def _by_factor(data: Mapping[str, Any]) -> dict[str, str]:
    factor = data.get("factor", 1.0)
    number = float(factor) if isinstance(factor, (int, float)) else 1.0
    if number <= 0:
        return {"factor": f"{number:g}", "larger": "zero or reversed", "more": "not, or reversed", "grows": "vanishes"}
    up = number > 1
    return {
        "factor": f"{number:g}",
        "larger": "larger" if up else "smaller",
        "more": "more" if up else "less",
        "grows": "grows" if up else "shrinks (weight decay)",
    }
