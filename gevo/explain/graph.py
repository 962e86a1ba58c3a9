"""The kernel graphs of base and variant side by side as one inline SVG, with the calls that differ marked."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from html import escape
from textwrap import shorten

from gevo.kernels import Row, StepKernels
from gevo.kernels_plot import COLOURS, Lane, lanes
from gevo.units import size

# All lengths are pixels.
_BOX, _ROW, _GAP, _LANE, _LEFT, _TOP, _BETWEEN = 300, 36, 8, 7, 120, 44, 40
_MOST_LANES = 14
_CHARS, _NAME_CHARS = 44, 16
_KEPT, _PASSED = "#b58900", "#8895a2"
CHANGED, GONE = "#1a7f37", "#c0392b"


def same_calls(base: StepKernels, variant: StepKernels) -> dict[int, int]:
    """Numbers of calls of the variant that are calls of the base, with their numbers there: the same kernel, in order,
    that reads what the same calls wrote."""
    matcher = SequenceMatcher(None, [r.kernel for r in base.rows], [r.kernel for r in variant.rows], autojunk=False)
    aligned = {
        variant.rows[b + i].number: base.rows[a + i].number
        for a, b, count in matcher.get_matching_blocks()
        for i in range(count)
    }
    found: dict[int, int] = {}
    for row in variant.rows:
        if row.number not in aligned:
            continue
        before = base.rows[aligned[row.number] - 1]
        own = [_source(variant, v, aligned) for v in row.reads]
        if own == [_source(base, v, {n: n for n in aligned.values()}) for v in before.reads]:
            found[row.number] = before.number
    return found


def _source(step: StepKernels, index: int, aligned: dict[int, int]) -> tuple[int, str, int]:
    """Who made a value, by the base's numbers, -1 for a call that is marked itself; which of its results it is; for
    what is given, its name."""
    value = step.values[index]
    if not value.maker:
        return 0, value.name, 0
    if value.maker not in aligned:
        return -1, "", 0
    own = [v for v in step.values if v.maker == value.maker]
    return aligned[value.maker], "", next(i for i, v in enumerate(own) if v is value)


def svg(base: StepKernels, variant: StepKernels) -> str:
    """The picture: at the left the base, calls that are gone in red; at the right the variant, changed ones in green.

    Lines at the right of the boxes are values from the call that makes them to those that read them.
    """
    same = same_calls(base, variant)
    kept = set(same.values())
    gone = {row.number for row in base.rows} - kept
    changed = {row.number for row in variant.rows} - set(same)
    widths = [_width(base), _width(variant)]
    height = _TOP + max(len(base.rows), len(variant.rows)) * (_ROW + _GAP) + _GAP
    whole = sum(widths) + _BETWEEN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height}" width="{whole}" height="{height}" '
        'role="img" aria-label="kernels of base and variant" font-family="sans-serif" font-size="11">'
    ]
    parts += _step(base, "base", gone, GONE, 0)
    parts += _step(variant, "variant", changed, CHANGED, widths[0] + _BETWEEN)
    return "\n".join([*parts, "</svg>"])


def _width(step: StepKernels) -> int:
    columns = max((lane.column + 1 for lane in _drawn(step)), default=0)
    return _LEFT + _BOX + columns * _LANE + 3 * _LANE


def _drawn(step: StepKernels) -> list[Lane]:
    return [lane for lane in lanes(step) if 0 <= lane.column < _MOST_LANES]


def _step(step: StepKernels, title: str, marked: set[int], colour: str, x: int) -> list[str]:
    count = f"{len(step.rows)} calls, {len(marked)} {'gone' if colour == GONE else 'changed'}, {size(step.peak_bytes)}"
    parts = [_text(x + _LEFT, 18, f"{title}: {count}", "font-weight:bold;font-size:13px")]
    for row in step.rows:
        parts += _box(step, row, row.number in marked, colour, x)
    for lane in _drawn(step):
        parts += _line(step, lane, marked, colour, x)
    return parts


def _y(number: int) -> int:
    return _TOP + (number - 1) * (_ROW + _GAP)


def _box(step: StepKernels, row: Row, marked: bool, colour: str, x: int) -> list[str]:
    y, left = _y(row.number), x + _LEFT
    stroke = f'stroke="{colour}" stroke-width="3"' if marked else 'stroke="#666" stroke-width="0.7"'
    fill = COLOURS.get(row.kind, "#eeeeee")
    mark = f' class="{"gone" if colour == GONE else "changed"}"' if marked else ""
    given = _names(step, [v for v in row.reads if not step.values[v].maker])
    back = _names(step, [v for v in row.writes if step.values[v].role in ("state", "metric")])
    title = f"{row.title}; {row.loops}; {row.flops} flop"
    return [
        f'<g{mark}><title>{escape(title)}</title><rect x="{left}" y="{y}" width="{_BOX}" height="{_ROW}" rx="4" '
        f'fill="{fill}" {stroke}/>',
        _text(left + 6, y + 14, f"{row.number}  {shorten(row.title, _CHARS, placeholder=' ...')}"),
        _text(left + 6, y + 28, shorten(row.loops, _CHARS, placeholder=" ..."), "fill:#555;font-size:9px"),
        _text(left - 6, y + 14, given and f"{given} >", "fill:#2c5d8a;font-size:9px;text-anchor:end"),
        _text(left - 6, y + 28, back and f"< {back}", "fill:#2c5d8a;font-size:9px;text-anchor:end"),
        "</g>",
    ]


def _names(step: StepKernels, values: Sequence[int]) -> str:
    names = [shorten(step.values[v].name or "?", _NAME_CHARS, placeholder="...") for v in values]
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def _line(step: StepKernels, lane: Lane, marked: set[int], colour: str, x: int) -> list[str]:
    maker = step.values[lane.value].maker
    edge = x + _LEFT + _BOX
    at = edge + (lane.column + 1.5) * _LANE
    stroke = colour if maker in marked else _KEPT if lane.kept else _PASSED
    start, ends = _y(maker) + _ROW * 0.7, [_y(reader) + _ROW * 0.3 for reader in lane.readers]
    low, high = min(start, *ends), max(start, *ends)
    path = f"M{edge} {start:.0f}H{at:.0f}M{at:.0f} {low:.0f}V{high:.0f}"
    path += "".join(f"M{at:.0f} {end:.0f}H{edge}" for end in ends)
    return [f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="1.2"/>']


def _text(x: float, y: float, text: str, style: str = "") -> str:
    if not text:
        return ""
    look = f' style="{style}"' if style else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{look}>{escape(text)}</text>'
