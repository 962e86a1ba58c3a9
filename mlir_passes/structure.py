"""The ops of a step as plain lines, each under the site that it came from, so that two steps can be compared.

Sites ride through the simplification as MLIR locations: those neither keep equal ops apart nor are they compared. A
value is called by the site of the op that makes it, so what the printer numbers anew is the same here. Constants, and
what is filled or repeated from them, are no lines of their own: they are said where they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mlir import ir

from mlir_passes.canonical import cleaned
from mlir_passes.edits.base import Edit
from mlir_passes.ir_tools import (
    SITE,
    attribute_names,
    body,
    entry_of,
    function,
    iterators,
    locate_sites,
    located_site,
    operations,
    producer,
    tensor_type,
    walk,
)
from mlir_passes.linalg_ops import indexing_map, is_contraction
from mlir_passes.pipeline import parse_base
from mlir_passes.repair import Editor

NEW = "new"  # what an op is called that no site stands for: "new1", "new2" in order
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_NAMED = {"max": "max", "min": "min", "cmp": "compare", "select": "where", "negf": "minus"}
_NOUNS = {
    "add": "addition", "sub": "subtraction", "mul": "multiplication", "div": "division", "max": "maximum",
    "min": "minimum", "compare": "comparison", "where": "selection", "exp": "exponential", "log": "logarithm",
    "sitofp": "conversion", "uitofp": "conversion", "truncf": "narrowing", "extf": "widening", "minus": "negation",
    "sqrt": "square root", "rsqrt": "reciprocal root", "transpose": "transposition", "broadcast": "repetition",
}  # fmt: skip
_SUMS = {"add": "sum", "max": "maximum over a loop", "min": "minimum over a loop", "mul": "product over a loop"}
_ORDERED = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 6: "!=", 8: "==", 9: ">", 10: ">=", 11: "<", 12: "<=", 13: "!="}
_INTEGERS = {0: "==", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">=", 6: "<", 7: "<=", 8: ">", 9: ">="}  # arith.cmpi's
_QUIET = ("arith.constant", "linalg.index", "arith.index_cast", "linalg.yield")
_LONGEST = 110  # characters of a line's expression


@dataclass(frozen=True)
class Line:
    """One op. kind: a word for what it does; text: what it computes from what; key: all of it, so that ops with one
    key are the same op; reads, results: names of values ("arg3", "op17#0"); shape: of the first result."""

    site: str
    kind: str
    text: str
    key: str
    reads: tuple[str, ...]
    results: tuple[str, ...]
    shape: tuple[int, ...]
    element: str

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Line:
        known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        return Line(**known)


@dataclass(frozen=True)
class Structure:
    """The lines of a step in order, and the names of what it returns. helpers: sites that are said where they are
    read, with how; readers: by such a site, the sites of the lines that read it."""

    lines: tuple[Line, ...]
    returns: tuple[str, ...]
    helpers: dict[str, str]
    readers: dict[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Structure:
        lines = tuple(Line.from_json(line) for line in data["lines"])
        readers = {site: tuple(found) for site, found in data["readers"].items()}
        return Structure(lines, tuple(data["returns"]), dict(data["helpers"]), readers)


def structure(base_text: str, edits: Sequence[Edit]) -> Structure:
    """The lines of a numbered base module with `edits` applied, simplified as a variant is; raises PassError."""
    module = parse_base(base_text)
    entry = entry_of(module)
    block = body(function(module, entry))
    editor = Editor(block)
    for edit in edits:
        edit.apply(editor)
    locate_sites(block, NEW)
    cleaned(module, entry)
    return _Reader(body(function(module, entry))).read()


class _Reader:
    """Names every value of a simplified block in order, and says every op by those names."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._names: dict[Any, str] = {argument: f"arg{i}" for i, argument in enumerate(block.arguments)}
        self._constant: set[str] = set()
        self._helpers: dict[str, str] = {}
        self._readers: dict[str, tuple[str, ...]] = {}

    def read(self) -> Structure:
        lines: list[Line] = []
        seen: dict[str, int] = {}
        *ops, last = operations(self._block)
        for op in ops:
            site = located_site(op) or NEW
            helper = self._helper(op)
            if helper is not None:
                self._names[op.results[0]] = helper
                self._constant.add(helper)
                self._helpers[site] = helper
                continue
            seen[site] = seen.get(site, 0) + 1
            if site == NEW:
                site = f"{NEW}{seen[site]}"
            elif seen[site] > 1:
                site = f"{site}.{seen[site]}"
            lines.append(self._line(op, site))
            self._note_readers(op, site)
        return Structure(tuple(lines), tuple(self._names[v] for v in last.operands), self._helpers, self._readers)

    def _note_readers(self, op: Any, site: str) -> None:
        """Enter `site` with every constant that it is made of, and with what those are made of."""
        pending = [producer(value) for inner in walk(op) for value in inner.operands]
        while pending:
            found = pending.pop()
            helper = (located_site(found) or NEW) if found is not None else ""
            if helper in self._helpers and site not in self._readers.get(helper, ()):
                self._readers[helper] = (*self._readers.get(helper, ()), site)
                pending += [producer(value) for value in found.operands] if found is not None else []

    def _helper(self, op: Any) -> str | None:
        """How an op is said where it is read, if it is a constant or made of nothing else; else None."""
        if op.name == "arith.constant":
            return _constant(op)
        if op.name == "tensor.empty":
            return "empty"
        if len(op.results) != 1 or not op.operands:
            return None
        inputs = [self._names[v] for v in op.operands]
        if op.name in ("linalg.fill", "linalg.broadcast") and inputs[0] in self._constant:
            return inputs[0]
        if op.name == "linalg.generic" and _copies(op) and inputs[0] in self._constant:
            return inputs[0]
        return None

    def _line(self, op: Any, site: str) -> Line:
        operands = [self._names[v] for v in op.operands]
        results = tuple(f"{site}#{i}" for i in range(len(op.results)))
        for name, result in zip(results, op.results, strict=True):
            self._names[result] = name
        made = tensor_type(op.results[0].type) if len(op.results) else None
        types = ", ".join(str(r.type) for r in op.results)
        attributes = ", ".join(f"{n}={op.attributes[n]}" for n in sorted(attribute_names(op)) if n != SITE)
        regions = _regions(op, self._names)
        kind = _kind(op, operands)
        return Line(
            site=site,
            kind=kind,
            text=f"{self._text(op, kind, operands)} : {_type_text(types)}",
            key=f"{op.name} ({', '.join(operands)}) {{{attributes}}} {regions} : {types}",
            reads=tuple(dict.fromkeys(n for n in operands if n not in self._constant)),
            results=results,
            shape=made.shape if made else (),
            element=made.element if made else "",
        )

    def _text(self, op: Any, kind: str, operands: Sequence[str]) -> str:
        read = [n for n in operands if n != "empty"]
        if op.name == "linalg.generic" and not is_contraction(op) and not _copies(op):
            said = _expression(op, operands, self._names)
            if said and len(said) <= _LONGEST:
                return said if "acc" not in said else f"{said}, acc from {operands[-1]}"
        word, inputs = _short(op.name), read
        if op.name.startswith("linalg.") and word in _SIGNS and len(operands) == 3:
            return f"{operands[0]} {_SIGNS[word]} {operands[1]}"
        acc = ""
        if kind in ("product", "convolution", "depthwise convolution") and len(operands) == 3:
            inputs, acc = operands[:2], "" if operands[2] == "0" else f" + {operands[2]}"
        said = {"relu": "max", "maximum": "max", "minimum": "min"}.get(kind, kind)
        return f"{said}({', '.join(inputs)}{_details(op)}){acc}"


def _constant(op: Any) -> str:
    """The value of a constant in short: one number where all elements are equal, else the first few."""
    value = op.attributes["value"]
    try:
        dense = ir.DenseElementsAttr(value)
    except ValueError:
        return _number(str(value).partition(" :")[0], value)
    if dense.is_splat:
        return _number(str(dense.get_splat_value()).partition(" :")[0], dense.get_splat_value())
    return str(value).partition(" :")[0].replace("dense<", "constant<")[:40]


def _number(text: str, value: Any) -> str:
    if isinstance(value, ir.FloatAttr):
        return f"{value.value:.7g}"
    return text


def _copies(op: Any) -> bool:
    """Whether a generic only puts its first input somewhere."""
    if op.name != "linalg.generic" or len(op.regions[0].blocks) != 1:
        return False
    block = op.regions[0].blocks[0]
    inner = operations(block)
    return len(inner) == 1 and len(inner[0].operands) == 1 and inner[0].operands[0] == block.arguments[0]


def _regions(op: Any, names: Mapping[Any, str]) -> str:
    """All regions of an op as text in which its own values are numbered from 0."""
    local: dict[Any, str] = {}
    parts: list[str] = []

    def said(value: Any) -> str:
        return local[value] if value in local else names.get(value, "?")

    def visit(inner: Any) -> None:
        for region in inner.regions:
            parts.append("{")
            for block in region.blocks:
                for argument in block.arguments:
                    local[argument] = f"%{len(local)}:{argument.type}"
                for one in operations(block):
                    operands = ",".join(said(v) for v in one.operands)
                    attributes = ",".join(f"{n}={one.attributes[n]}" for n in sorted(attribute_names(one)))
                    for result in one.results:
                        local[result] = f"%{len(local)}"
                    parts.append(f"{one.name}({operands}){{{attributes}}}:{','.join(str(r.type) for r in one.results)}")
                    visit(one)
            parts.append("}")

    visit(op)
    return " ".join(parts)


def _expression(op: Any, operands: Sequence[str], names: Mapping[Any, str]) -> str:
    """What a generic yields, in the names of what it reads; "" where it yields several values."""
    block = op.regions[0].blocks[0]
    count = len(op.operands) - len(op.results)
    said = {a: operands[i] if i < count else "acc" for i, a in enumerate(block.arguments)}
    *inner, last = operations(block)
    if len(last.operands) != 1:
        return ""
    for one in inner:
        said[one.results[0]] = _term(one, [said.get(v) or names.get(v, "?") for v in one.operands])
        if len(said[one.results[0]]) > 4 * _LONGEST:
            return ""
    text = said.get(last.operands[0]) or names.get(last.operands[0], "?")
    return text.removeprefix("(").removesuffix(")") if _wrapped(text) else text


def _wrapped(text: str) -> bool:
    """Whether one pair of brackets holds all of it."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text.startswith("(") and i == len(text) - 1
    return False


def _term(op: Any, operands: Sequence[str]) -> str:
    name = _short(op.name)
    if op.name == "arith.constant":
        return _constant(op)
    if name in _SIGNS and len(operands) == 2:
        return f"({operands[0]} {_SIGNS[name]} {operands[1]})"
    if name == "compare":
        number = int(str(op.attributes["predicate"]).partition(" :")[0])
        sign = (_ORDERED if op.name == "arith.cmpf" else _INTEGERS).get(number, f"compare {number}")
        return f"({operands[0]} {sign} {operands[1]})"
    if op.name == "linalg.index":
        return f"index{str(op.attributes['dim']).partition(' :')[0]}"
    return f"{name}({', '.join(operands)})"


def _short(name: str) -> str:
    """Of "arith.maximumf", "max"."""
    short = name.partition(".")[2]
    for prefix in (*_SIGNS, *_NAMED):
        if short.startswith(prefix):
            return _NAMED.get(prefix, prefix)
    return short


def _kind(op: Any, operands: Sequence[str]) -> str:
    """One or two words for what an op does."""
    name = op.name.partition(".")[2]
    if "depthwise" in name:
        return "depthwise convolution"
    if name.startswith("conv_"):
        return "convolution"
    if name.startswith("pooling"):
        return "pooling"
    if "mat" in name or name in ("dot", "contract"):
        return "product"
    if op.name != "linalg.generic":
        word = _short(op.name)
        return "relu" if word == "max" and "0" in operands else _NOUNS.get(word, word.replace("_", " "))
    if is_contraction(op):
        return _contraction(op)
    if _copies(op):
        return _move(op)
    inner = [o for o in operations(op.regions[0].blocks[0]) if o.name not in _QUIET]
    if "r" in iterators(op):
        combiner = producer(operations(op.regions[0].blocks[0])[-1].operands[0])
        return _SUMS.get(_short(combiner.name), "reduction") if combiner is not None else "reduction"
    words = list(dict.fromkeys(_short(o.name) for o in inner))
    if words == ["max"] and "0" in operands:
        return "relu"
    nouns = [_NOUNS.get(word, word) for word in words]
    if not nouns:
        return "counting" if "index" in str(op.regions[0].blocks[0]) else "copy"
    return nouns[0] if len(nouns) == 1 else f"{nouns[0]} and {nouns[1]}" if len(nouns) == 2 else "formula"


def _contraction(op: Any) -> str:
    maps = [indexing_map(op, i) for i in range(3)]
    if all(isinstance(e, ir.AffineDimExpr) for m in maps[:2] for e in m.results):
        return "product"
    plain = [{e.position for e in m.results if isinstance(e, ir.AffineDimExpr)} for m in maps]
    return "depthwise convolution" if plain[0] & plain[1] & plain[2] else "convolution"


def _move(op: Any) -> str:
    read = indexing_map(op, 0)
    if not all(isinstance(e, ir.AffineDimExpr) for e in read.results):
        return "reversal"
    if len(read.results) < read.n_dims:
        return "repetition"
    return "copy" if read == ir.AffineMap.get_identity(read.n_dims, context=read.context) else "transposition"


def _details(op: Any) -> str:
    """What a reader wants to know of an op beside its operands."""
    found: list[str] = []
    for name in ("static_offsets", "static_sizes", "static_strides", "strides", "dilations", "permutation", "dim"):
        if name in op.attributes:
            text = str(op.attributes[name])
            held = re.search(r"dense<([^>]*)>|: ([^>]*)>|(-?\d+) :", text)
            values = re.findall(r"-?\d+", next((part for part in held.groups() if part), "") if held else text)
            label = name.removeprefix("static_")
            if set(values) != {"1"} or ("stride" not in label and label != "dilations"):
                found.append(f"{label} {'x'.join(values)}")
    return "".join(f", {text}" for text in found)


def _type_text(types: str) -> str:
    return re.sub(r"tensor<([^>]*)>", r"\1", types)
