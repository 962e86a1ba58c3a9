"""StableHLO's interpreter tests as cases: a module without its checks, the data of its constants, what they must give.

A file of `tests/interpret` has functions that compare by the `check` dialect, one of `testdata` a @main that compares
by custom calls what it makes of @inputs with @expected. Constants with a dimension become arguments of the function, so
that nothing is computed while it is compiled; a type that no argument may have comes by a conversion from a wider one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir

from workloads.frontends.stablehlo_fixes import walk

FUNCTION = re.compile(r"^( *)func\.func (?:public |private )?@(\w+)", re.M)
# the `check` dialect, which jaxlib does not know: rewritten as custom calls
CONSTANT = re.compile(
    r"check\.(expect_\w+)_const\s+(%[\w#]+)\s*,\s*(dense<.*?>)\s*:\s*(tensor<.*?>)(?=[\s,{])"
    r"(?:\s*,?\s*\{?\s*tolerance = ([\d.e+-]+)[^\n]*)?",
    re.S,
)
COMPARED = re.compile(
    r"check\.(expect_\w+)\s+(%[\w#]+)\s*,\s*(%[\w#]+)"
    r"(?:\s*,\s*tolerance = ([\d.e+-]+))?[^\n]*?(tensor<.*?>)(?=[\s,]|$)[^\n]*",
    re.M,
)
GENERIC = re.compile(  # the form that any dialect may be printed in
    r'"check\.(expect_\w+)_const"\((%[\w#]+)\) *<\{'
    r"(?:tolerance = ([\d.e+-]+)[^,]*, )?value = (dense<.*?>) : (tensor<.*?>)\}>[^\n]*"
)
OUTSIDE = {
    "quantised": r"!quant|qint",
    "dynamic shapes": r"tensor<[^>]*\?|dynamic_(?:reshape|iota|pad|conv|gather|broadcast)|dimension_size|shape\.",
    "small floats": r"x?f(?:8|6|4)E",
    "2 and 4 bits": r"[x<]u?i[24]\b",
    "several devices": r"run_parallel|all_(?:gather|reduce|to_all)|collective_|reduce_scatter|(?:replica|partition)_id",
    "tokens and host calls": r"token|infeed|outfeed|\bsend\b|\brecv\b|after_all|interpreter\.|serialized",
    "tuples": r"tuple<",
}
WIDER = {"f16": "f32", "bf16": "f32", "i8": "i32", "i16": "i32", "ui8": "i32", "ui16": "i32"}
PARTS = {"complex<f32>": "f32", "complex<f64>": "f64"}  # of complex numbers, which pass as two real arrays
NUMPY = {
    "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i1": np.bool_,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64,
}  # fmt: skip
PLUMBING = (
    "constant",
    "convert",
    "bitcast_convert",
    "reshape",
    "broadcast_in_dim",
    "custom_call",
    "return",
    "transpose",
)


@dataclass(frozen=True)
class Test:
    """A function with checks in a part of a file."""

    path: Path
    part: str
    function: str


@dataclass(frozen=True)
class Expected:
    """What a result must be by a check; `data` of bf16 are f32. tolerance: what the test allows, 0 for none."""

    kind: str
    element: str
    data: np.ndarray
    tolerance: float


@dataclass(frozen=True)
class Case:
    """A module with one public function @main, its arguments, what its results must be, and the op that it is about."""

    module: Any
    arguments: tuple[np.ndarray, ...]
    expected: tuple[Expected, ...]
    op: str


def tests_in(folder: Path) -> list[Test]:
    """All functions with checks in the files under a folder."""
    return [test for path in sorted(folder.rglob("*.mlir")) for test in _of_file(path)]


def _of_file(path: Path) -> Iterator[Test]:
    for part in re.split(r"^// -----.*$", path.read_text(), flags=re.M):
        starts = list(FUNCTION.finditer(part))
        for i, start in enumerate(starts):
            end = starts[i + 1].start() if i + 1 < len(starts) else len(part)
            if "check." in part[start.start() : end]:
                yield Test(path, part, start[2])


def outside(test: Test) -> str:
    """What of a test is outside the documented types and ops, "" for nothing."""
    text = re.sub(r"//.*", "", test.part)
    return next((name for name, pattern in OUTSIDE.items() if re.search(pattern, text)), "")


def context() -> Any:
    """A context that reads StableHLO: a new one of JAX's."""
    lowered: Any = jax.jit(lambda x: x).lower(0).compiler_ir("stablehlo")
    made = lowered.context
    for dialect in ("stablehlo", "chlo", "func"):
        made.dialects[dialect]  # loads it
    return made


def case(test: Test) -> Case:
    """The case of a test, in the current context; raises MLIRError where jaxlib cannot read it."""
    module = ir.Module.parse(with_calls(test.part))
    functions = {ir.StringAttr(f.attributes["sym_name"]).value: f.operation for f in module.body.operations}
    function = functions[test.function]
    _inline_constants(function, functions)
    checks = [
        op for op in walk(module, "stablehlo.custom_call") if _target(op).startswith("check.") and _in(op, function)
    ]
    op = _subject(checks[0].operands[0], functions)
    expected = tuple(part for check in checks for part in _expected(check))
    for check in checks:
        check.operands[1] = check.operands[0]  # so that what is expected has no use
    arguments = _constants_to_arguments(function)
    results = [result for check in checks for result in _results_of(function, check.operands[0])]
    for check in checks:
        check.erase()
    _return(function, results)
    for name, other in functions.items():
        other.attributes["sym_visibility"] = ir.StringAttr.get("public" if name == test.function else "private")
    if test.function != "main":
        if "main" in functions:
            functions["main"].erase()
        function.attributes["sym_name"] = ir.StringAttr.get("main")
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]
    module.operation.verify()
    return Case(module, arguments, expected, op)


def with_calls(text: str) -> str:
    """The text with operations of the `check` dialect written as custom calls."""
    count = 0

    def constant(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        kind, value, data, form, tolerance = match.groups()
        name = f"%expected_{count}"
        return f"{name} = stablehlo.constant {data} : {form}\n  {_call(kind, value, name, form, tolerance)}"

    def compared(match: re.Match[str]) -> str:
        kind, value, other, tolerance, form = match.groups()
        return _call(kind, value, other, form, tolerance)

    text = GENERIC.sub(r"check.\1_const \2, \4 : \5 {tolerance = \3}", text).replace(" {tolerance = }", "")
    return COMPARED.sub(compared, CONSTANT.sub(constant, text))


def _call(kind: str, value: str, other: str, form: str, tolerance: str | None) -> str:
    attributes = "{has_side_effect = true" + (f", tolerance = {tolerance} : f64" if tolerance else "") + "}"
    return f"stablehlo.custom_call @check.{kind}({value}, {other}) {attributes} : ({form}, {form}) -> ()"


def _target(op: Any) -> str:
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _in(op: Any, function: Any) -> bool:
    while op is not None and op.name != "func.func":
        op = op.parent.operation if op.parent else None
    return op == function


def _block(function: Any) -> Any:
    return function.regions[0].blocks[0]


def _inline_constants(function: Any, functions: dict[str, Any]) -> None:
    """Calls without arguments replaced by what they return: constants, and what is computed of them."""
    for call in [op.operation for op in _block(function) if op.operation.name == "func.call"]:
        callee = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
        if len(call.operands) or callee == function:
            continue
        made: dict[Any, Any] = {}
        for op in _block(callee):
            if op.operation.name == "func.return":
                for result, value in zip(call.results, op.operation.operands, strict=True):
                    result.replace_all_uses_with(made[value])
                continue
            clone = op.operation.clone(ip=ir.InsertionPoint(call))
            for i, operand in enumerate(clone.operands):
                clone.operands[i] = made[operand]
            made.update(zip(op.operation.results, clone.results, strict=True))
        call.erase()


def _subject(value: Any, functions: dict[str, Any]) -> str:
    """The op that makes a value, looked for behind conversions and calls."""
    for _ in range(40):
        op = value.owner
        if isinstance(op, ir.Block):
            return "argument"
        op = op.operation
        name = op.name.partition(".")[2]
        if op.name == "func.call":
            callee = functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            last = list(_block(callee))[-1].operation
            value = last.operands[ir.OpResult(value).result_number]
        elif name in PLUMBING and len(op.operands) and op.operands[0].owner != op:
            inner = op.operands[0].owner
            if isinstance(inner, ir.Block) or inner.operation.name.endswith(".constant"):
                return name
            value = op.operands[0]
        else:
            return name
    return "unknown"


def _expected(check: Any) -> list[Expected]:
    maker = check.operands[1].owner
    if isinstance(maker, ir.Block) or maker.operation.name != "stablehlo.constant":
        raise ValueError("what is expected is no constant")
    kind, given = _target(check).removeprefix("check."), check.attributes
    tolerance = ir.FloatAttr(given["tolerance"]).value if "tolerance" in given else 1e-4 if "almost" in kind else 0.0
    element, data = element_of(check.operands[1].type), data_of(maker.operation)
    if element in PARTS:
        return [Expected(kind, PARTS[element], part, tolerance) for part in (np.real(data), np.imag(data))]
    return [Expected(kind, element, data, tolerance)]


def _constants_to_arguments(function: Any) -> tuple[np.ndarray, ...]:
    """The data of the function's constants that have a dimension, which are arguments then."""
    block, arrays = _block(function), list[np.ndarray]()
    for op in [op.operation for op in block if op.operation.name == "stablehlo.constant"]:
        form = ir.RankedTensorType(op.results[0].type)
        if not list(op.results[0].uses):
            op.erase()
            continue
        if not form.rank:
            continue
        element = element_of(form)
        data = data_of(op)
        if element in PARTS:
            parts = [np.ascontiguousarray(np.real(data)), np.ascontiguousarray(np.imag(data))]
            arrays += parts
            form_of_part = _tensor(form.shape, PARTS[element])
            made = [block.add_argument(form_of_part, ir.Location.unknown()) for _ in parts]
            with ir.InsertionPoint(op), ir.Location.unknown():
                joined = ir.Operation.create("stablehlo.complex", results=[form], operands=made)
            op.results[0].replace_all_uses_with(joined.result)
            op.erase()
            continue
        given = WIDER.get(element, "i32" if element == "ui32" else element)
        arrays.append(data.view(np.int32) if element == "ui32" else data.astype(NUMPY[given]))
        argument = block.add_argument(_tensor(form.shape, given), ir.Location.unknown())
        with ir.InsertionPoint(op), ir.Location.unknown():
            op.results[0].replace_all_uses_with(_converted(argument, form, given != element, element == "ui32"))
        op.erase()
    return tuple(arrays)


def _converted(value: Any, form: Any, needed: bool, bits: bool) -> Any:
    if not needed:
        return value
    name = "stablehlo.bitcast_convert" if bits else "stablehlo.convert"
    return ir.Operation.create(name, results=[form], operands=[value]).result


def _results_of(function: Any, value: Any) -> list[Any]:
    """The value as results may be: real and imaginary part of complex numbers, else one."""
    form = ir.RankedTensorType(value.type)
    element = element_of(form)
    if element in PARTS:
        part = _tensor(form.shape, PARTS[element])
        with ir.InsertionPoint(_terminator(function)), ir.Location.unknown():
            names = ("stablehlo.real", "stablehlo.imag")
            return [ir.Operation.create(name, results=[part], operands=[value]).result for name in names]
    given = WIDER.get(element, "i32" if element == "ui32" else element)
    with ir.InsertionPoint(_terminator(function)), ir.Location.unknown():
        return [_converted(value, _tensor(form.shape, given), given != element, element == "ui32")]


def _terminator(function: Any) -> Any:
    block = _block(function)
    return block.operations[len(block.operations) - 1].operation


def _return(function: Any, values: Sequence[Any]) -> None:
    """Makes these values the results of the function."""
    old = _terminator(function)
    with ir.InsertionPoint(old), ir.Location.unknown():
        ir.Operation.create("func.return", operands=list(values))
    old.erase()
    types = [a.type for a in _block(function).arguments], [v.type for v in values]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))


def _tensor(shape: Sequence[int], element: str) -> Any:
    return ir.Type.parse("tensor<" + "".join(f"{n}x" for n in shape) + f"{element}>")


def element_of(form: Any) -> str:
    return str(ir.RankedTensorType(form).element_type)


def data_of(constant: Any) -> np.ndarray:
    """The elements of a constant, from its text; those of bf16 as f32."""
    form = ir.RankedTensorType(constant.results[0].type)
    element, shape = element_of(form), tuple(form.shape)
    text = re.search(r"dense<(.*)> : tensor<.*>", str(constant), re.S)
    assert text is not None, str(constant)[:80]
    found = text[1]
    if found.startswith('"0x'):
        return _of_bytes(bytes.fromhex(found[3:-1]), element, shape)
    if not found:
        return np.zeros(shape, NUMPY.get(element, np.float32))
    if element.startswith(("f", "bf", "complex")):
        found = re.sub(r"0x([0-9A-Fa-f]+)", lambda m: _bits(m[1], PARTS.get(element, element)), found)
    words = found.replace("true", "True").replace("false", "False")
    given = eval(words, {"nan": np.nan, "inf": np.inf})
    if element in PARTS:
        halves = np.array(given, NUMPY[PARTS[element]])
        data = (halves[..., 0] + np.array(1j, NUMPY[element]) * halves[..., 1]).astype(NUMPY[element])
    else:
        data = np.array(given, NUMPY.get(element, np.float32))
    return np.broadcast_to(data, shape).copy()


def _bits(digits: str, element: str) -> str:
    """The float of these bits as Python; NaN with its sign, by which StableHLO sorts it."""
    value = float(_of_bytes(bytes.fromhex(digits)[::-1], element, ()))
    return ("-nan" if np.signbit(value) else "nan") if np.isnan(value) else repr(value)


def _of_bytes(raw: bytes, element: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    if element == "bf16":
        data = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif element == "i1":
        whole = np.frombuffer(raw, np.uint8)
        data = (whole if len(whole) == count else np.unpackbits(whole, bitorder="little")[: max(count, 1)]) != 0
    else:
        data = np.frombuffer(raw, NUMPY[element])
    return (data if len(data) == count else np.repeat(data[:1], count)).reshape(shape).copy()
