"""Affine expressions as plain linear forms, which MLIR's own do not always become: it leaves -(-d + 2) + 2 as it is."""

from __future__ import annotations

from typing import Any

from mlir import ir

Linear = tuple[dict[int, int], int]  # coefficient by loop, constant


def linear(expression: Any) -> Linear | None:
    """The linear form of an affine expression of loops, None where it has none (mod, floordiv)."""
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position: 1}, 0
    if isinstance(expression, ir.AffineConstantExpr):
        return {}, expression.value
    if not isinstance(expression, (ir.AffineAddExpr, ir.AffineMulExpr)):
        return None
    left, right = (linear(e.maybe_downcast()) for e in (expression.lhs, expression.rhs))
    if left is None or right is None:
        return None
    if isinstance(expression, ir.AffineAddExpr):
        return plus(left, right, 1)
    if not right[0]:
        return plus(({}, 0), left, right[1])
    return plus(({}, 0), right, left[1]) if not left[0] else None


def plus(left: Linear, right: Linear, factor: int) -> Linear:
    """left + factor * right."""
    loops = dict(left[0])
    for loop, coefficient in right[0].items():
        loops[loop] = loops.get(loop, 0) + factor * coefficient
    return {loop: c for loop, c in loops.items() if c}, left[1] + factor * right[1]


def simplified(expression: Any, context: ir.Context) -> Any:
    """The expression written as a sum of loops; as it is where it is not linear."""
    form = linear(expression.maybe_downcast())
    if form is None:
        return expression
    terms = [_term(loop, coefficient, context) for loop, coefficient in sorted(form[0].items())]
    if form[1] or not terms:
        terms.append(ir.AffineConstantExpr.get(form[1], context))
    made = terms[0]
    for term in terms[1:]:
        made = ir.AffineExpr.get_add(made, term)
    return made


def _term(loop: int, coefficient: int, context: ir.Context) -> Any:
    dim = ir.AffineDimExpr.get(loop, context)
    return dim if coefficient == 1 else ir.AffineExpr.get_mul(dim, ir.AffineConstantExpr.get(coefficient, context))
