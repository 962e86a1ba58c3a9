"""An explanation as one page: no script, no file beside it, nothing from the net."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from gevo.explain.estimate import Estimate
from gevo.explain.graph import CHANGED, GONE, svg
from gevo.explain.lab import Scale
from gevo.explain.report import Explanation
from gevo.explain.text import ending, epistasis, heading, interval, left_out, listed

_STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; }} th, td {{ text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top; }}
th {{ border-bottom: 1px solid #999; font-weight: 600; }} td.n {{ white-space: nowrap; font-size: .85rem; }}
pre {{ background: #f6f8fa; padding: .7rem; overflow-x: auto; line-height: 1.45; font-size: .82rem; }}
pre .add {{ background: #dafbe1; color: {CHANGED}; }} pre .del {{ background: #ffebe9; color: {GONE}; }}
pre .where {{ color: #777; }} .meaning {{ color: #555; }} .dim {{ color: #777; font-size: .85rem; }}
.scroll {{ overflow-x: auto; }}
"""
_BAR, _HEIGHT = 150, 14  # pixels


def html(found: Explanation) -> str:
    """The page as text."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(heading(found))}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(heading(found))}</h1>",
        f'<p class="dim">Workload {escape(found.workload)}. {escape(found.method)}</p>',
        *_words(found),
        *_effects(found),
        *_sums(found),
        *_pairs(found),
        *_diff(found),
        *_graph(found),
    ]
    if found.left:
        parts.append(f"<p>Not finished: about {found.left} evaluations are left.</p>")
    return "\n".join([*parts, "</body></html>", ""])


def _words(found: Explanation) -> list[str]:
    kept = [s for s in found.said if s.kept]
    parts = ["<h2>What the edits do</h2>", "<ol>"] if kept else []
    for said in kept:
        meaning = f'<br><span class="meaning">{escape(said.meaning)}</span>' if said.meaning else ""
        parts.append(f'<li value="{said.gene + 1}">{escape(said.words)}{meaning}</li>')
    parts += ["</ol>"] if kept else []
    for text, genes in left_out(found):
        items = "".join(f'<li value="{s.gene + 1}">{escape(s.words)}</li>' for s in found.said if s.gene in genes)
        parts.append(f"<details><summary>{escape(text)}: {listed(genes)}</summary><ol>{items}</ol></details>")
    return parts


def _effects(found: Explanation) -> list[str]:
    if not found.effects:
        return []
    parts = ["<h2>Effect of each edit</h2>", '<p class="dim">Left of the middle is better. Lines are intervals.</p>']
    parts += ["<table>", _head(["edit", "", *(s.objective for s in found.scales)])]
    reach: dict[str, float] = {}
    for scale in found.scales:
        values = [side.get(scale.objective) for e in found.effects for side in (e.within, e.alone)]
        reach[scale.objective] = _reach(values, scale)
    for effect in found.effects:
        for label, values in (("in the variant", effect.within), ("alone", effect.alone)):
            cells = [_bar(values.get(s.objective), s, reach[s.objective]) for s in found.scales]
            number = str(effect.gene + 1) if label != "alone" else ""
            parts.append(_row([number, label], cells))
        if ending(effect):
            parts.append(_row(["", escape(ending(effect))], []))
    return [*parts, "</table>"]


def _sums(found: Explanation) -> list[str]:
    rows = {
        "all edits": [found.whole.get(s.objective) for s in found.scales],
        "the edits that matter": [found.sums[s.objective].joint for s in found.scales],
        "sum of them alone": [found.sums[s.objective].alone for s in found.scales],
        "sum of them in the variant": [found.sums[s.objective].within for s in found.scales],
    }
    parts = ["<h2>Against the base</h2>", "<table>", _head(["", *(s.objective for s in found.scales)])]
    reach = {s.objective: _reach([values[i] for values in rows.values()], s) for i, s in enumerate(found.scales)}
    for label, values in rows.items():
        cells = [_bar(v, s, reach[s.objective]) for v, s in zip(values, found.scales, strict=True)]
        parts.append(_row([label], cells))
    return [*parts, "</table>"]


def _pairs(found: Explanation) -> list[str]:
    if not found.pairs:
        return []
    parts = ["<h2>Pairs</h2>", '<p class="dim">What two edits do together less what each does alone.</p>', "<table>"]
    parts.append(_head(["edits", "", *(s.objective for s in found.scales)]))
    for pair in found.pairs:
        cells = [
            f"{escape(interval(pair.surplus.get(s.objective), s))} <b>{escape(epistasis(pair, s))}</b>"
            for s in found.scales
        ]
        parts.append(_row([f"{pair.genes[0] + 1} and {pair.genes[1] + 1}", escape(pair.ends or pair.name)], cells))
    return [*parts, "</table>"]


def _diff(found: Explanation) -> list[str]:
    if not found.diff:
        return []
    rows: list[str] = []
    for line in found.diff:
        if line.sign == "@":
            rows.append("  ...")
            continue
        where = f'   <span class="where">{escape(line.where)}</span>' if line.where else ""
        text = f"{line.sign} {escape(line.site):<8} {escape(line.text)}{where}"
        look = {"+": "add", "-": "del"}.get(line.sign)
        rows.append(f'<span class="{look}">{text}</span>' if look else text)
    return ["<h2>What changed in the step</h2>", "<pre>", *rows, "</pre>"]


def _graph(found: Explanation) -> list[str]:
    if found.base_kernels is None or found.kernels is None or not found.kept:
        return []
    note = "Boxes are kernel calls from top to bottom, lines the values between them; yellow ones are kept for the "
    note += "backward pass. Red: gone from the base. Green: new or changed in the variant."
    return [
        "<h2>Kernels</h2>",
        f'<p class="dim">{note}</p>',
        f'<div class="scroll">{svg(found.base_kernels, found.kernels)}</div>',
    ]


def _head(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<th>{escape(c)}</th>" for c in cells) + "</tr>"


def _row(labels: Sequence[str], cells: Sequence[str]) -> str:
    """A row of ready HTML."""
    return (
        "<tr>" + "".join(f"<td>{c}</td>" for c in labels) + "".join(f'<td class="n">{c}</td>' for c in cells) + "</tr>"
    )


def _reach(values: Sequence[Estimate | None], scale: Scale) -> float:
    """What the end of a bar stands for."""
    known = [abs(end) for v in values if v is not None for end in (v.mean, v.low, v.high) if math.isfinite(end)]
    return max([*known, 2 * scale.floor])


def _bar(value: Estimate | None, scale: Scale, reach: float) -> str:
    """A bar from the middle with its interval, and the figure under it."""
    if value is None:
        return "-"

    def at(x: float) -> float:
        return _BAR / 2 * (1 + max(-1.0, min(1.0, x / reach)))

    colour = {1: GONE, -1: CHANGED, 0: "#9aa5b1"}[value.beyond(scale.floor)]
    left, right = sorted((at(0.0), at(value.mean)))
    middle = _HEIGHT / 2
    shapes = (
        f'<line x1="{_BAR / 2}" y1="0" x2="{_BAR / 2}" y2="{_HEIGHT}" stroke="#bbb"/>'
        f'<rect x="{left:.1f}" y="3" width="{right - left:.1f}" height="{_HEIGHT - 6}" fill="{colour}"/>'
        f'<line x1="{at(value.low):.1f}" y1="{middle}" x2="{at(value.high):.1f}" y2="{middle}" stroke="#222"/>'
    )
    return f'<svg width="{_BAR}" height="{_HEIGHT}">{shapes}</svg><br>{escape(interval(value, scale))}'
