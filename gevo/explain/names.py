"""What a reader calls the sites and values of a base step: by parameter, by kind of op, by the user's line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

from gevo.explain.difference import short
from mlir_passes.space import source
from mlir_passes.structure import Line, Structure
from workloads.workload import Signature

MOVES = ("repetition", "transposition", "copy", "reversal", "expand shape", "collapse shape", "extract slice", "pad")
CONTRACTIONS = ("product", "convolution", "depthwise convolution")
_RESHAPES = ("expand shape", "collapse shape")
_SINGLE = (
    "addition", "subtraction", "multiplication", "division", "square root", "reciprocal root", "negation", "formula",
    "selection", "powf", "copy", "maximum", "minimum", "exponential", "logarithm",
)  # fmt: skip
GRADIENT, UPDATE, NEW, PARAMETER = "gradient", "update", "new value", "parameter"


class Names:
    """`name(site_or_value)` says it with its site; `role(value)` says what it is to a parameter, for readings."""

    def __init__(self, base: Structure, signature: Signature, where: Mapping[str, str]) -> None:
        self._base, self._signature, self._where = base, signature, where
        self._lines = {line.site: line for line in base.lines}
        self._maker = {value: line for line in base.lines for value in line.results}
        self.leaves = _leaf_names(signature)

    def name(self, what: str) -> str:
        """Of "op17", "op17#0" or "arg3", in words with its site: "the gradient of w1 (op20, model.py:17)"."""
        what = source(what)
        if what in self.leaves:
            return self.leaves[what]
        site = what.partition("#")[0]
        origin, _, tag = site.partition("'")
        place = ", ".join(p for p in (short(site), self._where.get(origin, "")) if p)
        if origin in self._base.helpers:
            text = self._base.helpers[origin]
            return f"{'storage' if text == 'empty' else f'the constant {text}'} ({place})"
        if origin not in self._lines:
            return site
        said = self._said[origin]
        return f"{'a copy of ' if tag else ''}{said} ({place})"

    def role(self, what: str) -> tuple[str, str]:
        """What a site or value is to a parameter, and which: ("gradient", "w1"); ("", "") if nothing."""
        what = source(what)
        if what in self.leaves and self._is_weight(what):
            return PARAMETER, self.leaves[what]
        site = what.partition("#")[0].partition("'")[0]
        if site in self._base.helpers:  # a constant is to a parameter what those are that read it
            read = {self._roles.get(reader, ("", "")) for reader in self._base.readers.get(site, ())}
            return read.pop() if len(read) == 1 else ("", "")
        return self._roles.get(site, ("", ""))

    def normalised(self, parameter: str) -> bool:
        """Whether its update divides by the size of its gradient, as Adam does."""
        roots = ("square root", "reciprocal root")
        return any(role == (UPDATE, parameter) and self._lines[s].kind in roots for s, role in self._roles.items())

    def kind(self, what: str) -> str:
        """The kind of the op at a site or that makes a value, "" for what is not known."""
        line = self._lines.get(what.partition("#")[0].partition("'")[0])
        return line.kind if line is not None else ""

    def contractions(self, value: str, instead: str) -> list[str]:
        """What `value` is computed by that `instead` is not: products and convolutions in order, without sites."""
        gone = self._upstream([source(value)]) - self._upstream([source(instead)])
        return [self._said[at.site] for at in self._base.lines if at.site in gone and at.kind in CONTRACTIONS]

    def line(self, what: str) -> Line | None:
        return self._lines.get(what.partition("#")[0])

    @property
    def results(self) -> dict[str, str]:
        """What a reader calls results, as "return0" and so on."""
        leaves = [f"the new {name}" for name in list(self.leaves.values())[: len(self._signature.state)]]
        given = len(self._base.returns) - len(self._signature.metrics)
        state = leaves if given == len(leaves) else []
        named = [*state, *(m.name or "result" for m in self._signature.metrics)]
        return {f"return{i}": name for i, name in enumerate(named)}

    # what belongs to what

    @cached_property
    def forward(self) -> set[str]:
        """Sites that a metric depends on; of a step without metrics, all."""
        returns = self._base.returns
        metrics = returns[len(returns) - len(self._signature.metrics) :] if self._signature.metrics else returns
        return self._upstream(metrics)

    @cached_property
    def weights(self) -> list[str]:
        """State leaves that a metric depends on."""
        read = {value for site in self.forward for value in self._lines[site].reads}
        count = len(self._signature.state)
        return [name for name in list(self.leaves)[:count] if name in read]

    def _is_weight(self, value: str) -> bool:
        return value in self.weights

    def _upstream(self, values: Iterable[str]) -> set[str]:
        found: set[str] = set()
        pending = list(values)
        while pending:
            line = self._maker.get(pending.pop())
            if line is not None and line.site not in found:
                found.add(line.site)
                pending += line.reads
        return found

    @cached_property
    def _roles(self) -> dict[str, tuple[str, str]]:
        """By site: gradients, updates and new values of state leaves; weights claim theirs before moments do."""
        found: dict[str, tuple[str, str]] = {}
        state = list(self.leaves)[: len(self._signature.state)]
        if len(self._base.returns) - len(self._signature.metrics) != len(state):
            return found  # a prediction has no new state
        places = {arg: i for i, arg in enumerate(state)}
        for arg in sorted(state, key=lambda a: a not in self.weights):
            name, value = self.leaves[arg], self._base.returns[places[arg]]
            line = self._maker.get(value)
            if line is None:
                continue
            found[line.site] = (NEW, name)
            for site in self._chain(line):
                role = UPDATE if site not in self._gradient_sites(line) else GRADIENT
                found.setdefault(site, (role, name))
            for site in self._gradient_sites(line):
                if arg in self.weights and found.get(site, ("", ""))[0] != NEW:
                    role, others = found.get(site, ("", ""))
                    shared = role == GRADIENT and name not in others.split(" and ")
                    found[site] = (GRADIENT, f"{others} and {name}" if shared else name)
        return found

    def _chain(self, last: Line) -> list[str]:
        """Elementwise ops of the leaf's size from which its new value is made, behind its gradient."""
        found, pending = list[str](), [last]
        while pending:
            line = pending.pop()
            if line.site in found or line.kind not in (*_SINGLE, *_RESHAPES) or line.site in self.forward:
                continue
            if math.prod(line.shape) != math.prod(last.shape):
                continue
            found.append(line.site)
            pending += [self._maker[v] for v in line.reads if v in self._maker]
        return found

    def _gradient_sites(self, last: Line) -> list[str]:
        """Where the gradient enters the chain: what no elementwise op of this shape makes, with what only moves it."""
        chain = set(self._chain(last))
        found: list[str] = []
        for site in chain:
            for value in self._lines[site].reads:
                line = self._maker.get(value)
                if line is None or line.site in chain or line.kind == "repetition":
                    continue
                if math.prod(line.shape) != math.prod(last.shape):
                    continue
                found += self._moved(line)
        kept = [s for s in chain if s != last.site and set(self._sources(s)) & set(found) and self._plain(s)]
        return [*found, *kept]

    def _moved(self, line: Line) -> list[str]:
        """A line and, where it only moves one value, the line of that."""
        if line.site in self.forward:
            return []
        before = self._maker.get(line.reads[0]) if line.kind in MOVES and len(line.reads) == 1 else None
        return [line.site, *(self._moved(before) if before is not None else [])]

    def _sources(self, site: str) -> list[str]:
        return [self._maker[v].site for v in self._lines[site].reads if v in self._maker]

    def _plain(self, site: str) -> bool:
        """Whether it adds nothing to its one operand: autodiff starts its sums at zero."""
        return self._lines[site].text.startswith("0 + ")

    @cached_property
    def _said(self) -> dict[str, str]:
        """By site, what it is called, without the site."""
        softmax = self._softmax()
        found: dict[str, str] = {}
        for line in self._base.lines:
            role, name = self._roles.get(line.site, ("", ""))
            if role:
                found[line.site] = f"the {role} of {name}"
            elif line.site in softmax:
                found[line.site] = f"the {line.kind} of the softmax"
            else:
                found[line.site] = f"the {self._exact_kind(line)}{self._near(line)}"
        metrics = self._base.returns[len(self._base.returns) - len(self._signature.metrics) :]
        for value, spec in zip(metrics, self._signature.metrics, strict=False):
            if value in self._maker and self._maker[value].site in found:
                found[self._maker[value].site] = f"the {spec.name or 'result'}"
        return found

    def _exact_kind(self, line: Line) -> str:
        """Its kind; an addition of a value to what was computed from it is a residual's."""
        values = [v for v in line.reads if v in self._maker]
        if line.kind != "addition" or line.site not in self.forward or len(values) != 2:
            return line.kind
        one, two = (self._maker[v] for v in values)
        around = one.site in self._upstream([values[1]]) or two.site in self._upstream([values[0]])
        return "residual addition" if around and "repetition" not in (one.kind, two.kind) else line.kind

    def _near(self, line: Line) -> str:
        """Which of its kind: by the parameter that it reads, or that was read last on the way to it."""
        back = "" if line.site in self.forward else " on the way back"
        read = [self._origin(v) for v in line.reads]
        args = [self.leaves[v] for v in read if v in self.leaves]
        if args:
            word = {"addition": "of", "repetition": "of"}.get(line.kind, "with")
            return f" {word} {' and '.join(dict.fromkeys(args))}{back}"
        if back:
            return back
        before = self._last_weight(line)
        return f" after {before}" if before else ""

    def _origin(self, value: str) -> str:
        """The value that `value` is a moved form of."""
        line = self._maker.get(value)
        while line is not None and line.kind in MOVES and line.reads:
            value = line.reads[0]
            line = self._maker.get(value)
        return value

    def _last_weight(self, line: Line) -> str:
        """The op that read a weight last before this one."""
        seen, pending = set[str](), list(line.reads)
        while pending:
            maker = self._maker.get(pending.pop(0))
            if maker is None or maker.site in seen:
                continue
            seen.add(maker.site)
            args = [self.leaves[o] for o in map(self._origin, maker.reads) if o in self.leaves and self._is_weight(o)]
            if args and maker.kind not in MOVES:
                return f"the {maker.kind} {'of' if maker.kind == 'addition' else 'with'} {args[0]}"
            pending += maker.reads
        return ""

    def _softmax(self) -> set[str]:
        """Sites of softmaxes: an exponential, the sum of it, what is subtracted before, what it is divided by."""
        found: set[str] = set()
        users: dict[str, list[Line]] = {}
        for line in self._base.lines:
            for value in line.reads:
                users.setdefault(value, []).append(line)
        for line in self._base.lines:
            if line.kind != "exponential":
                continue
            totals = [u for u in users.get(line.results[0], []) if u.kind == "sum" and len(u.shape) < len(line.shape)]
            if not totals:
                continue
            before = self._maker.get(line.reads[0]) if line.reads else None
            after = [u for t in totals for u in users.get(t.results[0], []) if u.kind in ("logarithm", "repetition")]
            found |= {line.site, *(t.site for t in totals), *(a.site for a in after)}
            if before is not None and before.kind == "subtraction":
                found.add(before.site)
        return found


def _leaf_names(signature: Signature) -> dict[str, str]:
    """Names of arguments: state leaves without a folder that all weights share, batch leaves as they are."""
    state = [s.name or f"state {i}" for i, s in enumerate(signature.state)]
    short = [name.removeprefix("params.") for name in state]
    if len(set(short)) == len(state):
        state = short
    batch = [f"the batch's {s.name}" if s.name else f"batch {i}" for i, s in enumerate(signature.batch)]
    return {f"arg{i}": name for i, name in enumerate([*state, *batch])}
