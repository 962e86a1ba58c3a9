"""What an edit does, in words, and what that means where it is a case that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gevo.explain.names import CONTRACTIONS, GRADIENT, NEW, PARAMETER, UPDATE, Names
from mlir_passes.edits import Edit
from mlir_passes.space import Space

_RESIZED = re.compile(r" \((?:cropped|reshaped)[^()]*where shapes differ\)")
MOST_LISTED = 4
SCALES, LEFT_OUT = ("scale", "body_scale"), ("delete", "skip")
GIVEN = ("delete", "replace", "rewire", "skip", "swap")
REDUCTIONS = ("sum", "maximum over a loop", "minimum over a loop", "reduction", "pooling")


@dataclass(frozen=True)
class Reading:
    """What edits of some kinds mean where their target has one of these roles, or is made by one of these kinds of op
    (any where none is given). normalised: only where the parameter's update divides by the size of its gradient.

    strided: only where the edit's `stride` is above 1. between: only where contractions lie between what is skipped to
    and what is given instead. text: with {name} of the parameter or the op, the edit's own
    fields, and {larger}, {more}, {grows} by whether its factor is above 1.
    """

    edits: tuple[str, ...]
    text: str
    roles: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    normalised: bool | None = None
    strided: bool = False
    between: bool = False


# The first that fits is said. It looks at an edit's target, its `value` or `site`, and at its `factor`.
READINGS: tuple[Reading, ...] = (
    Reading(SCALES, "its update divides by the size of the gradient, so this changes little", (GRADIENT,), (), True),
    Reading(SCALES, "a {larger} learning rate for {name}", (GRADIENT, UPDATE), (), None),
    Reading(SCALES, "{name} {grows} with every step", (NEW,)),
    Reading(("scale",), "{name} counts {more}", (PARAMETER,)),
    Reading(SCALES, "its outputs are {larger}", (), CONTRACTIONS),
    Reading(GIVEN, "{name} learns from something else than its gradient", (GRADIENT, UPDATE)),
    Reading(GIVEN, "{name} gets something else than its update", (NEW,)),
    Reading(("delete",), "left out for all that follows: {between}", between=True),
    Reading(LEFT_OUT, "no nonlinearity there", (), ("relu",)),
    Reading(LEFT_OUT, "a residual is left out", (), ("residual addition",)),
    Reading(("skip",), "left out for all that follows: {between}", between=True),
    Reading(LEFT_OUT, "a layer is left out", (), CONTRACTIONS),
    Reading(LEFT_OUT, "no bias or shift there", (), ("addition",)),
    Reading(("shrink",), "a gradient from a part of its terms", (GRADIENT,)),
    Reading(("shrink",), "less work: every {nth} channel or tap is used", (), CONTRACTIONS, strided=True),
    Reading(("shrink",), "less work: {count} of its channels or taps are used", (), CONTRACTIONS),
    Reading(("shrink",), "taken over every {nth} value", (), REDUCTIONS, strided=True),
    Reading(("shrink",), "taken over {count} values", (), REDUCTIONS),
    Reading(("cast",), "stored in {to}: less memory, and rounded"),
    Reading(("copy",), "computed a second time, for one reader"),
)


def sentences(edit: Edit, names: Names, space: Space) -> tuple[str, str]:
    """What an edit does, with sites, and what it means, "" where no reading fits."""
    said = edit.words(names.name)
    return _RESIZED.sub("", said) if _fits(edit.to_json(), space) else said, reading(edit, names)


def _fits(data: Mapping[str, Any], space: Space) -> bool:
    """Whether all that an edit puts in has the shape of what it takes the place of, so that nothing is resized."""
    uses = data.get("instead") or data.get("use")
    given = uses if isinstance(uses, (list, tuple)) else [uses] if uses else []
    target = target_of(data)
    wanted = [target] if "#" in target else list(space.by_site[target].results) if target in space.by_site else []
    if "slot" in data and target in space.by_site:
        wanted = [space.by_site[target].operands[data["slot"]]]
    types = [(space.types.get(u["value"]), space.types.get(w)) for u, w in zip(given, wanted, strict=False)]
    return bool(types) and len(given) == len(wanted) and all(a is not None and a == b for a, b in types)


def reading(edit: Edit, names: Names) -> str:
    """The first of `READINGS` that fits, filled in."""
    data = edit.to_json()
    target = target_of(data)
    role, parameter = names.role(target)
    kind = names.kind(target)
    between = _between(data, target, names)
    for one in READINGS:
        if edit.kind not in one.edits or (one.roles and role not in one.roles) or (one.ops and kind not in one.ops):
            continue
        if one.normalised is not None and names.normalised(parameter) != one.normalised:
            continue
        if one.strided and data.get("stride", 1) < 2:
            continue
        if one.between and not between:
            continue
        return one.text.format(
            **{
                **data,
                "name": parameter or names.name(target),
                "between": _listed(between),
                "nth": _nth(data.get("stride", 1)),
                **_by_factor(data),
            }
        )
    return ""


def _between(data: Mapping[str, Any], target: str, names: Names) -> list[str]:
    """Contractions that are left out with an op, since what is given instead comes from before them."""
    instead: Any = data["instead"] if data["kind"] in LEFT_OUT else []
    given = [instead] if isinstance(instead, Mapping) else list(instead)
    value = target if "#" in target else f"{target}#0"
    found = [name for use in given[:1] for name in names.contractions(value, use["value"])]
    alone = data["kind"] == "delete" and names.kind(target) in CONTRACTIONS and len(found) == 1
    return [] if alone else found


def target_of(data: Mapping[str, Any]) -> str:
    """The site or value that an edit is about."""
    if str(data["kind"]).startswith("body_"):
        return str(data["site"])
    return str(data.get("value") or data.get("site") or data.get("one") or "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_LISTED]) + (
        f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    )


def _nth(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _by_factor(data: Mapping[str, Any]) -> dict[str, str]:
    factor = float(data.get("factor", 1.0))
    if factor <= 0:
        return {"larger": "zero or reversed", "more": "not at all, or reversed", "grows": "vanishes or turns"}
    if factor > 1:
        return {"larger": "larger", "more": "more", "grows": "grows"}
    return {"larger": "smaller", "more": "less", "grows": "shrinks (weight decay)"}
