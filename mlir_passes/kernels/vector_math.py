"""Expansions of math functions for f32, on a scalar or on a vector of any lane count, without calls; sin and cos alone
branch, for arguments beyond 1e5.

Each bound holds for the error in units in the last place (ulp) of the float32 result against float64, checked on
every 64th float32 value (powf: on random ones). NaN gives NaN; an overflow gives infinity. Denormal arguments and
results are kept, within the same bound of their own last place, unless the thread flushes them to zero.
Fused multiply-add must stay fused: `math-expand-ops` splits it, so `convert-math-to-llvm` is to run before.

The polynomials are minimax fits of relative error by Lawson's reweighted least squares, in float64 on 2001 or more
Chebyshev points; coefficients were rounded to float32 one by one, lowest first, with a refit of the rest after each.
Reductions of the argument follow Cody and Waite, "Software Manual for the Elementary Functions" (1980).
Rounding to an integer is an addition of 1.5 * 2^23, whose low mantissa bits then hold that integer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from mlir_passes.kernels.code import Code, like

# Ops that LLVM lowers to a few instructions of its own (SSE4.1 and FMA on x86), so they need no expansion.
NATIVE = frozenset(
    f"math.{name}" for name in ("absf", "ceil", "copysign", "floor", "fma", "round", "roundeven", "sqrt", "trunc")
)

# The C library's double function of each op; that of floats has an f more. What NATIVE and EXPANSIONS lack is called.
FUNCTIONS = MappingProxyType(
    {f"math.{name}": name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp2",
        "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
    )} | {"math.powf": "pow"}
)  # fmt: skip

_ROUND = 12582912.0  # 1.5 * 2^23; its own low 22 bits are zero
_ONE_BITS = 0x3F800000
_SIGN_BITS = -(2**31)
_EXPONENT_BITS = -(2**23)
_TWO_THIRDS_BITS = 0x3F2AAAAB
_INF, _MINUS_INF, _NAN = "0x7F800000", "0xFF800000", "0xFFFFFFFF"
_LARGEST, _LEAST_NORMAL = "0x7F7FFFFF", "0x00800000"
_LOG2_E = 1.44269502
_LOG2_E_REST = 1.92596303e-08
_ROUND_64 = 6755399441055744.0  # 1.5 * 2^52, the same for float64
_HALF_PI = 1.5707963267948966
# 1 / (2 pi) in parts of 28 bits, the k-th in units of 2^-(30 + 28 k): enough for arguments up to 2^128
_TURN = (170891318, 240010261, 44024437, 131200308, 232525238, 43358524, 70845471)
_LN2 = 0.693147182
_LN2_REST = -1.90465421e-09

# (e^r - 1 - r) / r^2 for |r| < 0.6936, 1.5e-8 of e^r
_EXP = (0.500000358, 0.16666618, 0.041661229, 0.00833593681, 0.00141047896, 0.000196294466)
# the same for |r| < 0.3468, 1.4e-8 of e^r - 1
_EXPM1 = (0.49999997, 0.166665465, 0.0416674353, 0.00836626533, 0.00138706784)
# (2^r - 1) / r for |r| < 0.5002, 3e-9 of 2^r
_EXP2 = (0.693147182, 0.240226477, 0.0555035956, 0.00961850025, 0.00133909821, 0.000153289671)
# (ln(1 + f) - f) / f^2 for |f| <= 1/3, 5e-9 of ln(1 + f)
_LOG = (
    -0.5,
    0.333332151,
    -0.249998048,
    0.200104356,
    -0.166802213,
    0.140055418,
    -0.121874616,
    0.139856085,
    -0.128792122,
)
# (log2(1 + f) - f log2(e)) / f^2 for |f| <= 1/3, 5e-9 of log2(1 + f)
_LOG2 = (
    -0.721347511,
    0.480896711,
    -0.36067152,
    0.288686514,
    -0.240632474,
    0.20209831,
    -0.175938413,
    0.201595336,
    -0.185448289,
)
# (log2((1 + z) / (1 - z)) - 2 z log2(e)) / z^3 in z^2 for |z| < 0.2001, 3e-11 of the logarithm
_LOG2_QUOTIENT = (0.961796641, 0.577090621, 0.411261976, 0.347795457)
# sin(r) / r and cos(r) in r^2 for |r| < 0.82, 6e-9 and 3e-9
_SIN = (1.0, -0.166666508, 0.00833192468, -0.000194841443)
_COS = (1.0, -0.5, 0.0416666381, -0.00138869591, 2.43936502e-05)
# sinh(x) / x - 1 in x^2 for |x| <= 9.1, 4e-9 of tanh(x)
_SINH = (0.0, 0.166666627, 0.00833343714, 0.000198343245, 2.77270101e-06, 2.33590569e-08, 2.27621449e-10)
# erf(x) / sqrt(1 - erf(x)^2) / x - 1 in x^2 for |x| <= 3.95, 8e-9 of erf(x)
_ERF = (
    0.128379151,
    0.342223018,
    0.0804538727,
    0.0126633681,
    0.00136635569,
    0.00015526374,
    2.87908574e-06,
    2.74581112e-06,
    -2.08253212e-07,
    1.64554468e-08,
)


@final
@dataclass(frozen=True)
class _Lanes:
    """Ops on values of one f32 type, written into `code`. A float operand is a constant."""

    code: Code
    type: str

    @property
    def integers(self) -> str:
        return like(self.type, "i32")

    def _value(self, operand: str | float) -> str:
        return (
            operand if isinstance(operand, str) and operand.startswith("%") else self.code.constant(operand, self.type)
        )

    def _bits(self, operand: str | int) -> str:
        return operand if isinstance(operand, str) else self.code.constant(operand, self.integers)

    def op(self, name: str, *operands: str | float) -> str:
        return self.code.op(name, [self._value(operand) for operand in operands], self.type)

    def integer(self, name: str, *operands: str | int) -> str:
        return self.code.op(f"arith.{name}", [self._bits(operand) for operand in operands], self.integers)

    def add(self, a: str | float, b: str | float) -> str:
        return self.op("arith.addf", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        return self.op("arith.subf", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        return self.op("arith.mulf", a, b)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        return self.op("math.fma", a, b, c)

    def bits(self, value: str) -> str:
        return self.code.convert("arith.bitcast", value, self.type, self.integers)

    def floats(self, bits: str) -> str:
        return self.code.convert("arith.bitcast", bits, self.integers, self.type)

    def compare(self, predicate: str, a: str | float, b: str | float) -> str:
        return self.code.op(f"arith.cmpf {predicate},", [self._value(a), self._value(b)], self.type)

    def both(self, a: str, b: str) -> str:
        return self.code.op("arith.andi", [a, b], like(self.type, "i1"))

    def either(self, a: str, b: str) -> str:
        return self.code.op("arith.ori", [a, b], like(self.type, "i1"))

    def select(self, mask: str, a: str | float, b: str | float) -> str:
        return self._select(mask, self._value(a), self._value(b), self.type)

    def select_bits(self, mask: str, a: str | int, b: str | int) -> str:
        return self._select(mask, self._bits(a), self._bits(b), self.integers)

    def _select(self, mask: str, a: str, b: str, type_: str) -> str:
        made = self.code.name()
        masks = f"{like(type_, 'i1')}, " if type_.startswith("vector<") else ""
        self.code.line(f"{made} = arith.select {mask}, {a}, {b} : {masks}{type_}")
        return made

    def clamp(self, x: str, low: str | float, high: str | float) -> str:
        """x within bounds; NaN stays. Compare and select in this order are one `minps` or `maxps`."""
        below = self.select(self.compare("olt", high, x), high, x)
        return self.select(self.compare("ogt", low, below), low, below)

    def horner(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with these coefficients, lowest first."""
        value: str | float = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, coefficient)
        return self._value(value)

    def power_of_two(self, exponent: str, bias: int = _ONE_BITS) -> str:
        """2^n times the float of `bias`, for n in the low nine bits of `exponent`."""
        return self.floats(self.integer("addi", self.integer("shli", exponent, 23), bias))

    def scaled_power(self, r: str, rounded: str) -> str:
        """2^(r + n) for |r| <= 0.5 and n in the low bits of `rounded`, in two factors: 2^n alone may not be a float."""
        n = self.bits(rounded)
        half = self.integer("shrsi", n, 1)
        value = self.fma(self.horner(r, _EXP2), r, 1.0)
        value = self.mul(value, self.power_of_two(half))
        return self.mul(value, self.power_of_two(self.integer("subi", n, half)))

    def split(self, x: str) -> tuple[str, str]:
        """(2^23 n, f) with x = 2^n (1 + f), |f| <= 1/3, for a positive and finite x."""
        small = self.compare("olt", x, _LEAST_NORMAL)
        bits = self.bits(self.select(small, self.mul(x, 2.0**23), x))
        exponent = self.exponent(bits)
        f = self.sub(self.floats(self.integer("subi", bits, exponent)), 1.0)
        exponent = self.integer("subi", exponent, self.select_bits(small, 23 << 23, 0))
        return self.to_float(exponent), f

    def exponent(self, bits: str) -> str:
        """n << 23 of a float 2^n m with m from 2/3 to 4/3."""
        return self.integer("andi", self.integer("subi", bits, _TWO_THIRDS_BITS), _EXPONENT_BITS)

    def to_float(self, integers: str) -> str:
        return self.code.convert("arith.sitofp", integers, self.integers, self.type)

    def at_ends(self, x: str, value: str, finite: str, zero: float) -> str:
        """`value` of a logarithm that has its pole at x = `zero`; x itself where `finite` is false (inf, NaN)."""
        value = self.select(finite, value, x)
        value = self.select(self.compare("oeq", x, zero), _MINUS_INF, value)
        return self.select(self.compare("olt", x, zero), _NAN, value)

    def saturating(self, x: str, bound: float, coefficients: Sequence[float]) -> str:
        """g / sqrt(1 + g^2) for g = x + x p(x^2), x clamped: rounding errors fade as it nears 1."""
        x = self.clamp(x, -bound, bound)
        g = self.fma(x, self.horner(self.mul(x, x), coefficients), x)
        return self.op("arith.divf", g, self.op("math.sqrt", self.fma(g, g, 1.0)))


def _exp(code: Code, operands: Sequence[str], type_text: str) -> str:
    """e^x, 2 ulp: e^(r + 2 m ln 2) as e^r times 2^m twice, so that results near inf and 0 need no selects."""
    v = _Lanes(code, type_text)
    x = v.clamp(operands[0], -104.0, 89.0)
    rounded = v.fma(x, _LOG2_E / 2, _ROUND)
    m = v.sub(rounded, _ROUND)
    r = v.fma(m, -2 * _LN2_REST, v.fma(m, -2 * _LN2, x))
    scale = v.power_of_two(v.bits(rounded))
    return v.mul(v.mul(v.horner(r, (1.0, 1.0, *_EXP)), scale), scale)


def _exp2(code: Code, operands: Sequence[str], type_text: str) -> str:
    """2^x, 1 ulp; exact for an integer x."""
    v = _Lanes(code, type_text)
    x = v.clamp(operands[0], -151.0, 129.0)
    rounded = v.add(x, _ROUND)
    return v.scaled_power(v.sub(x, v.sub(rounded, _ROUND)), rounded)


def _expm1(code: Code, operands: Sequence[str], type_text: str) -> str:
    """e^x - 1, 2 ulp: 2 ((e^r - 1) 2^(n - 1) + 2^(n - 1) - 1/2)."""
    v = _Lanes(code, type_text)
    x = v.clamp(operands[0], -20.0, 89.0)
    rounded = v.fma(x, _LOG2_E, _ROUND)
    n = v.sub(rounded, _ROUND)
    r = v.fma(n, -_LN2_REST, v.fma(n, -_LN2, x))
    near = v.fma(v.mul(r, r), v.horner(r, _EXPM1), r)
    scale = v.power_of_two(v.bits(rounded), _ONE_BITS - (1 << 23))
    half = v.fma(near, scale, v.sub(scale, 0.5))
    # Halves of denormals are not exact, and -0 is to stay.
    tiny = v.compare("olt", v.op("math.absf", operands[0]), 2.0**-26)
    return v.select(tiny, operands[0], v.add(half, half))


def _log(code: Code, operands: Sequence[str], type_text: str) -> str:
    """ln x, 1 ulp; -inf at 0, NaN below."""
    v = _Lanes(code, type_text)
    (x,) = operands
    exponent, f = v.split(x)
    value = v.fma(v.mul(f, f), v.horner(f, _LOG), f)
    value = v.fma(exponent, _LN2 * 2.0**-23, value)
    return v.at_ends(x, value, v.compare("olt", x, _INF), 0.0)


def _log2(code: Code, operands: Sequence[str], type_text: str) -> str:
    """log2 x, 1.5 ulp; exact for a power of two; -inf at 0, NaN below."""
    v = _Lanes(code, type_text)
    (x,) = operands
    exponent, f = v.split(x)
    value = v.fma(v.mul(f, f), v.horner(f, _LOG2), v.mul(f, _LOG2_E_REST))
    value = v.fma(exponent, 2.0**-23, v.fma(f, _LOG2_E, value))
    return v.at_ends(x, value, v.compare("olt", x, _INF), 0.0)


def _log1p(code: Code, operands: Sequence[str], type_text: str) -> str:
    """ln(1 + x), 1.5 ulp; -inf at -1, NaN below. 1 + x = 2^n (1 + f) with f = 2^-n x + (2^-n - 1)."""
    v = _Lanes(code, type_text)
    (x,) = operands
    exponent = v.exponent(v.bits(v.add(x, 1.0)))
    scaled = v.floats(v.integer("subi", v.bits(x), exponent))
    scale = v.floats(v.integer("subi", _ONE_BITS + (2 << 23), exponent))  # 4 * 2^-n: 2^-n may be denormal
    f = v.add(scaled, v.fma(scale, 0.25, -1.0))
    value = v.fma(v.mul(f, f), v.horner(f, _LOG), f)
    value = v.fma(v.to_float(exponent), _LN2 * 2.0**-23, value)
    # 2x = x for both zeros and infinities: they are their own values.
    return v.at_ends(x, value, v.compare("one", v.add(x, x), x), -1.0)


def _tanh(code: Code, operands: Sequence[str], type_text: str) -> str:
    """tanh x, 3 ulp; never beyond 1, and 1 for x >= 9.1; from tanh = sinh / sqrt(1 + sinh^2)."""
    return _Lanes(code, type_text).saturating(operands[0], 9.1, _SINH)


def _erf(code: Code, operands: Sequence[str], type_text: str) -> str:
    """erf x, 3 ulp; never beyond 1, and 1 for x >= 3.95; the same form as tanh."""
    return _Lanes(code, type_text).saturating(operands[0], 3.95, _ERF)


def _rsqrt(code: Code, operands: Sequence[str], type_text: str) -> str:
    """1 / sqrt(x), 1.5 ulp; inf of its sign at zeros, NaN below."""
    v = _Lanes(code, type_text)
    return v.op("arith.divf", 1.0, v.op("math.sqrt", operands[0]))


def _sin(code: Code, operands: Sequence[str], type_text: str) -> str:
    """sin x, 2.1 ulp; see `_sine`."""
    return _sine(_Lanes(code, type_text), operands[0], 0)


def _cos(code: Code, operands: Sequence[str], type_text: str) -> str:
    """cos x, 2 ulp; see `_sine`."""
    return _sine(_Lanes(code, type_text), operands[0], 1)


def _sine(v: _Lanes, x: str, quarters: int) -> str:
    """sin(x + quarters pi/2), by pi/2 in three parts; where a lane is beyond 1e5, by `_far_quarters`."""
    rounded = v.fma(x, 0.636619747, _ROUND)
    n = v.sub(rounded, _ROUND)
    r = x
    for part in (1.57079601, 3.13916473e-07, 5.39030253e-15):
        r = v.fma(n, -part, r)
    far = v.compare("ogt", v.op("math.absf", x), 1e5)
    r, quadrant = _far_quarters(v, x, far, v.clamp(r, -0.82, 0.82), v.bits(rounded))
    square = v.mul(r, r)
    sine, cosine = v.mul(r, v.horner(square, _SIN)), v.horner(square, _COS)
    if quarters:
        quadrant = v.integer("addi", quadrant, quarters)
    odd = v.code.op("arith.cmpi slt,", [v.integer("shli", quadrant, 31), v.code.constant(0, v.integers)], v.integers)
    sign = v.integer("andi", v.integer("shli", quadrant, 30), _SIGN_BITS)
    return v.floats(v.integer("xori", v.bits(v.select(odd, cosine, sine)), sign))


def _far_quarters(v: _Lanes, x: str, far: str, r: str, quadrant: str) -> tuple[str, str]:
    """(r, n) with x = r + n pi/2 in the lanes that are `far`, and as given in the others; skipped where none is.

    After Payne and Hanek (1983): x times each part of 1 / (2 pi) is exact in float64, and so are the whole turns that
    are taken from it. NaN and infinities give NaN.
    """
    code, wide, lanes = v.code, _Lanes(v.code, like(v.type, "f64")), like(v.type, "i1")
    any_far = far
    if v.type.startswith("vector<"):
        any_far = code.name()
        code.line(f"{any_far} = vector.reduction <or>, {far} : {lanes} into i1")
    made = code.name()
    with code.block(f"{made}:2 = scf.if {any_far} -> ({v.type}, {v.integers})", "}"):
        value = code.convert("arith.extf", x, v.type, wide.type)
        rest, turned = code.constant(0.0, wide.type), code.constant(0.0, wide.type)
        for k, part in enumerate(_TURN):
            turns = wide.mul(value, part * 2.0 ** -(30 + 28 * k))
            quarters = wide.fma(wide.sub(turns, wide.op("math.roundeven", turns)), 4.0, rest)
            whole = wide.op("math.roundeven", quarters)
            rest, turned = wide.sub(quarters, whole), wide.add(turned, whole)
        angle = code.convert("arith.truncf", wide.mul(rest, _HALF_PI), wide.type, v.type)
        bits = code.convert("arith.bitcast", wide.add(turned, _ROUND_64), wide.type, like(v.type, "i64"))
        number = code.convert("arith.trunci", bits, like(v.type, "i64"), v.integers)
        kept = v.select(far, angle, r), v.select_bits(far, number, quadrant)
        code.line(f"scf.yield {', '.join(kept)} : {v.type}, {v.integers}")
        code.line("} else {")
        code.line(f"scf.yield {r}, {quadrant} : {v.type}, {v.integers}")
    return f"{made}#0", f"{made}#1"


def _powf(code: Code, operands: Sequence[str], type_text: str) -> str:
    """x^y, 5 ulp, 2 for |y| <= 80; special values as in C99. 2^(y log2 |x|), logarithm and product in two floats."""
    v = _Lanes(code, type_text)
    x, y = operands
    high, low = _log2_pair(v, v.op("math.absf", x))
    bounded = v.clamp(y, "0xFF7FFFFF", _LARGEST)  # inf times log2(1) is to be 0
    product = v.mul(bounded, high)
    rest = v.fma(bounded, low, v.op("math.fma", bounded, high, v.op("arith.negf", product)))
    rest = v.select(v.compare("olt", v.op("math.absf", product), 256.0), rest, 0.0)
    product = v.clamp(product, -151.0, 129.0)
    rounded = v.add(product, _ROUND)
    value = v.scaled_power(v.add(v.sub(product, v.sub(rounded, _ROUND)), rest), rounded)
    return _with_sign_of_power(v, x, y, value)


def _log2_pair(v: _Lanes, x: str) -> tuple[str, str]:
    """log2 x in two floats for x >= 0 or NaN, about 2^-30 relative: 2 atanh(z) with z = f / (2 + f), also in two."""
    exponent, f = v.split(x)
    under = v.add(f, 2.0)
    under_rest = v.sub(f, v.sub(under, 2.0))
    inverse = v.op("arith.divf", 1.0, under)
    z = v.mul(f, inverse)
    minus = v.op("arith.negf", z)
    z_rest = v.mul(v.fma(minus, under_rest, v.fma(minus, under, f)), inverse)
    square = v.mul(z, z)
    high = v.mul(z, 2 * _LOG2_E)
    low = v.fma(z, 2 * _LOG2_E, v.op("arith.negf", high))
    slope = v.fma(square, 2 * _LOG2_E, 2 * _LOG2_E)  # of 2 log2(e) atanh(z), 2 log2(e) / (1 - z^2)
    low = v.fma(z_rest, slope, v.fma(z, 2 * _LOG2_E_REST, low))
    low = v.fma(v.mul(z, square), v.horner(square, _LOG2_QUOTIENT), low)
    n = v.mul(exponent, 2.0**-23)
    total = v.add(n, high)
    low = v.add(low, v.sub(high, v.sub(total, n)))
    high = v.add(total, low)
    low = v.sub(low, v.sub(high, total))
    high = v.select(v.compare("oeq", x, 0.0), _MINUS_INF, high)
    return v.select(v.compare("olt", x, _INF), high, x), low


def _with_sign_of_power(v: _Lanes, x: str, y: str, value: str) -> str:
    """x^y from |x|^y: the sign of an odd power, NaN for another power of a negative x, and 1 for 1^y and x^0."""
    half = v.mul(y, 0.5)
    broken = v.compare("une", v.op("math.floor", y), y)
    odd = v.both(v.compare("oeq", v.op("math.floor", y), y), v.compare("one", v.op("math.floor", half), half))
    sign = v.select_bits(odd, v.integer("andi", v.bits(x), _SIGN_BITS), 0)
    value = v.floats(v.integer("xori", v.bits(value), sign))
    negative = v.both(v.compare("olt", x, 0.0), v.compare("ogt", x, _MINUS_INF))
    value = v.select(v.both(negative, broken), _NAN, value)
    return v.select(v.either(v.compare("oeq", y, 0.0), v.compare("oeq", x, 1.0)), 1.0, value)


# Op name to a function (code, operands, type of operands and result) -> name of the result. f32 only.
EXPANSIONS: Mapping[str, Callable[[Code, Sequence[str], str], str]] = MappingProxyType(
    {
        "math.cos": _cos,
        "math.erf": _erf,
        "math.exp": _exp,
        "math.exp2": _exp2,
        "math.expm1": _expm1,
        "math.log": _log,
        "math.log1p": _log1p,
        "math.log2": _log2,
        "math.powf": _powf,
        "math.rsqrt": _rsqrt,
        "math.sin": _sin,
        "math.tanh": _tanh,
    }
)
