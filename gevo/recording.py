"""Choosing the edits of a recorded space and evaluating all their subsets; what was evaluated is kept at once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitness.job import PoolEvent
from fitness.result import Result
from gevo.campaign import Evaluator
from gevo.errors import CampaignError, RunDamaged
from gevo.files import write_text
from gevo.genome import Genome
from gevo.objectives import figure
from gevo.replay import Recording, head_from_json, head_json
from mlir_passes.edits import KINDS, Edit, edit_class
from mlir_passes.space import Space

DRAWN = 28  # candidates of each kind that are evaluated alone
ALIKE = {"runtime_s": 0.05, "error": 0.02, "peak_bytes": 0.0, "energy_j": 0.01}  # a difference up to this part of the
# base's figure is none: ratios of times spread by 2 to 5 % where others use the machine, bytes are exact
WORST = 1.0  # an edit that adds as much as this part of a figure does not help, whatever it takes away: the point is
# beyond the reference of hypervolume, twice the base
BLOCK = 128  # subsets a call of the evaluator

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Candidate:
    """An edit and what it does alone: "helps" in some objective, "harms" otherwise, "neutral", or "fails".

    gain: the largest part of a figure of the base that it takes away, 0 unless it helps."""

    edit: Edit
    label: str
    gain: float = 0.0


def judged(edit: Edit, result: Result, base: Result) -> Candidate:
    """What an edit does alone, from its result."""
    if not result.ok:
        return Candidate(edit, "fails")
    if result.fingerprint == base.fingerprint:
        return Candidate(edit, "neutral")
    differences = [_difference(result, base, name) for name in base.objectives]
    if min(differences) < 0 and max(differences) < WORST:
        return Candidate(edit, "helps", -min(differences))
    return Candidate(edit, "harms" if max(differences) > 0 else "neutral")


def candidates(
    space: Space,
    evaluator: Evaluator,
    rng: random.Random,
    watch: Watch = lambda n, of: None,
    drawn: int = DRAWN,
) -> list[Candidate]:
    """Up to `drawn` edits of each kind that each apply to the base, and what they do alone; of those that make the
    same program one. What seems to help is evaluated twice, and the lesser gain counts."""
    found = [edit_class(kind).draw(space, rng) for kind in KINDS for _ in range(drawn)]
    edits = list(dict.fromkeys(e for e in found if e is not None and e.applies(space)))
    first = _alone(edits, evaluator, watch)
    different = {r.fingerprint or str(n): e for n, (e, r) in enumerate(zip(edits, first, strict=True))}
    once = [judged(e, r, evaluator.base) for e, r in zip(edits, first, strict=True) if e in different.values()]
    again = [c.edit for c in once if c.label == "helps"]
    twice = {e: judged(e, r, evaluator.base) for e, r in zip(again, _alone(again, evaluator, watch), strict=True)}
    return [min(c, twice.get(c.edit, c), key=lambda found: found.gain) for c in once]


def choose(found: Sequence[Candidate], space: Space, count: int, rng: random.Random) -> list[Candidate]:
    """`count` of the candidates that apply one after the other: one in eleven fails alone, one is neutral, two harm,
    one is another form of a helpful one at the same site, the rest help; kinds take turns, the largest gains first.

    A step where too few edits help gets what there is. Raises CampaignError if `count` do not fit together.
    """
    part = max(1, count // 11)
    wanted = {"helps": count - 5 * part, "harms": 2 * part, "neutral": part, "fails": part}
    chosen: list[Candidate] = []
    for name, number in wanted.items():
        _take(chosen, _in_turns([c for c in found if c.label == name], rng), number, space)
    helpful = {c.edit.sites for c in chosen if c.label == "helps"}
    _take(chosen, [c for c in found if c.edit.sites in helpful and c.label != "fails"], count - len(chosen), space)
    _take(chosen, _in_turns([c for c in found if c.label == "helps"], rng), count - len(chosen), space)
    _take(chosen, _in_turns(found, rng), count - len(chosen), space)
    if len(chosen) < count:
        raise CampaignError(
            f"only {len(chosen)} of {len(found)} drawn edits can be applied together, {count} are wanted",
            "--edits",
            "Ask for fewer, or give another --seed",
        )
    return chosen[:count]


def record(head: Recording, evaluator: Evaluator, part: Path, watch: Watch = lambda n, of: None) -> Recording:
    """The whole recording; every result is in the file `part` at once, and what is there is not evaluated again."""
    count = 1 << len(head.edits)
    done = read_part(part)[1] if part.exists() else {}
    if not part.exists():
        write_text(part, json.dumps(head_json(head), separators=(",", ":")) + "\n")
    todo = [number for number in range(count) if number not in done]
    with part.open("a") as file:
        for start in range(0, len(todo), BLOCK):
            block = todo[start : start + BLOCK]

            def keep(event: PoolEvent, block: Sequence[int] = block) -> None:
                if event.kind == "finished" and event.result is not None:
                    number = block[event.index]
                    done[number] = event.result
                    file.write(json.dumps({"subset": number, "result": event.result.to_json()}) + "\n")
                    file.flush()
                    watch(len(done), count)

            known = {r.fingerprint: r for r in done.values() if r.fingerprint and not r.answered_by}
            evaluator.evaluate([head.genome(number).to_json() for number in block], known, keep)
    return replace(head, results=tuple(done[number] for number in range(count)))


def read_part(part: Path) -> tuple[Recording, dict[int, Result]]:
    """The head and the results by subset of an unfinished recording; a torn last line is cut off the file.

    Raises RunDamaged if another line is not whole."""
    lines = part.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        write_text(part, "".join(lines))
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return head_from_json(rows[0]), {row["subset"]: Result.from_json(row["result"]) for row in rows[1:]}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise RunDamaged(f"this is no unfinished recording: {error}", part, "Delete it to begin anew") from error


def _take(chosen: list[Candidate], order: Iterable[Candidate], number: int, space: Space) -> None:
    """Append the first `number` of `order` that are not there and apply after those that are."""
    space = space.after(c.edit for c in chosen)
    for candidate in order:
        if number <= 0:
            return
        if candidate not in chosen and candidate.edit.applies(space):
            chosen.append(candidate)
            space, number = candidate.edit.extend(space), number - 1


def _in_turns(found: Sequence[Candidate], rng: random.Random) -> list[Candidate]:
    """One of each kind in turn, the largest gains first, otherwise shuffled."""
    by_kind: dict[str, list[Candidate]] = {}
    for candidate in sorted(rng.sample(found, len(found)), key=lambda c: -c.gain):
        by_kind.setdefault(candidate.edit.kind, []).append(candidate)
    longest = max(map(len, by_kind.values()), default=0)
    return [of_kind[turn] for turn in range(longest) for of_kind in by_kind.values() if turn < len(of_kind)]


def _difference(result: Result, base: Result, name: str) -> float:
    """How much worse a figure is, as a part of the base's; 0 if it is alike."""
    of_base = figure(base, name)
    difference = (figure(result, name) - of_base) / of_base if of_base else 0.0
    return difference if abs(difference) > ALIKE[name] else 0.0


def _alone(edits: Sequence[Edit], evaluator: Evaluator, watch: Watch) -> list[Result]:
    """What each edit alone gives."""
    done = 0

    def count(event: PoolEvent) -> None:
        nonlocal done
        if event.kind == "finished":
            done += 1
            watch(done, len(edits))

    return evaluator.evaluate([Genome((edit,)).to_json() for edit in edits], {}, count)
