"""Made-up landscapes over the space of `synthetic`: what a genome costs is a pure function of its edits.

Each edit falls into a class by its kind and site, and has an effect that its other fields change a little, so that
perturbing pays. Shares of the classes are near those of single edits on real steps: a third changes nothing, a third
fails, most of the rest harms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from fitness.result import Measure, Outcome, Result
from gevo.genome import Genome
from mlir_passes.edits import Edit

NAMES = ("runtime_s", "peak_bytes", "error")
NEUTRAL, FAILS, HARMS = 0.30, 0.60, 0.88  # upper bounds of the classes' shares; what is left helps


@dataclass(frozen=True)
class Landscape:
    """Costs of genomes. pairs: whether an eighth of what would fail works, and gains much, beside an edit of its group
    that costs a little alone: such an edit is worth nothing by itself."""

    pairs: bool = False
    salt: str = ""

    def __call__(self, genome: Genome) -> Result:
        time = size = error = 0.0
        active: list[str] = []
        groups = {self._group(edit) for edit in genome.edits if self._class(edit) == "lock"}
        for edit in dict.fromkeys(genome.edits):
            kind, own = self._class(edit), self._number("own", json.dumps(edit.to_json(), sort_keys=True))
            strength = 0.75 + 0.5 * own
            if kind == "neutral":
                continue
            if kind == "fails" or (kind == "key" and self._group(edit) not in groups):
                return Result(Outcome.REJECTED, "verify", "made up")
            active.append(json.dumps(edit.to_json(), sort_keys=True))
            a, b = self._number("a", self._place(edit)), self._number("b", self._place(edit))
            match kind:
                case "helps":
                    time, size, error = time - 0.25 * a * strength, size - 0.15 * b, error + 0.03 * a * b * strength
                case "harms":
                    time, size, error = time + 0.05 * a, size + 0.05 * b, error + 0.3 * strength * b
                case "lock":
                    time, error = time + 0.02, error + 0.004
                case _:
                    time, size = time - 0.4 * strength, size - 0.1
        fingerprint = hashlib.sha256(repr(sorted(active)).encode()).hexdigest()[:20] + genome.storage
        ratio = 2.0**time * (1.0 if genome.storage == "f32" else 1.02)
        values = {
            "runtime_s": 1e-3 * ratio,
            "peak_bytes": round(1e5 * 2.0**size * (1.0 if genome.storage == "f32" else 0.8)),
            "energy_j": 1e-2 * ratio,
            "error": min(1.0, 0.1 + error),
        }
        objectives = {name: Measure(value, "model:made up") for name, value in values.items()}
        return Result(Outcome.OK, fingerprint=fingerprint, objectives=objectives, runtime_ratio=ratio)

    def _class(self, edit: Edit) -> str:
        share = self._number("class", self._place(edit))
        if share < NEUTRAL:
            return "lock" if self.pairs and share > NEUTRAL - 0.08 else "neutral"
        if share < FAILS:
            return "key" if self.pairs and share > FAILS - 0.04 else "fails"
        return "harms" if share < HARMS else "helps"

    def _group(self, edit: Edit) -> int:
        return int(4 * self._number("group", self._place(edit)))

    def _place(self, edit: Edit) -> str:
        return f"{edit.kind} {getattr(edit, 'site', None) or edit.sites[0]} {getattr(edit, 'slot', '')}"

    def _number(self, what: str, text: str) -> float:
        """A number from 0 to 1 by the hash of a text."""
        digest = hashlib.sha256(f"{self.salt} {what} {text}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / (1 << 48)


def share(results: Sequence[Result]) -> float:
    """The hypervolume of all valid results, as a share of the box between 0 and twice the base's figures."""
    from gevo.objectives import bounds, point
    from gevo.selection import non_dominated
    from gevo.volume import hypervolume

    base = bounds(results[0], NAMES)
    points = [point(r, NAMES, {}) for r in results if r.ok]
    return hypervolume([points[i] for i in non_dominated(points)], [base[name] for name in NAMES])
