"""An explanation on a terminal: words, tables of effects, the diff."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gevo.explain.effects import ADDITIVE, Effect, Pair
from gevo.explain.estimate import Estimate
from gevo.explain.lab import Genes, Scale
from gevo.explain.report import Explanation

COLOURS = {"-": "red", "+": "green", " ": "dim", "@": "dim"}


def show(found: Explanation, console: Console) -> None:
    """Print an explanation."""
    console.print(Text(heading(found), style="bold"))
    _edits(found, console)
    if found.effects:
        console.print(_effects(found))
    if found.pairs:
        console.print(_pairs(found))
    if found.whole:
        console.print(_sums(found))
    if found.diff:
        console.print(Text("\nWhat changed in the step", style="bold"))
        _diff(found, console)
    console.print(Text(f"\n{found.method}", style="dim"))
    if found.left:
        text = f"Not finished: about {found.left} evaluations are left. The same command goes on"
        console.print(text, style="yellow", highlight=False)


def heading(found: Explanation) -> str:
    """How many edits there are and how many matter."""
    count, kept = len(found.said), len(found.kept)
    if not kept and found.minimal:
        return f"{found.record} of {found.run}: {_nothing(found)}"
    verb = "matter" if found.minimal else "may matter"
    return f"{found.record} of {found.run}: {kept} of {count} edit{'s' * (count != 1)} {verb}"


def _nothing(found: Explanation) -> str:
    """What is said of a variant that is no better than the base."""
    count, left = len(found.said), found.left_out
    if left.harmful:
        return f"without its {count} edits no objective is worse" if count > 1 else "without its edit none is worse"
    if left.together or left.unknown:
        return f"its {count} edits together change no objective beyond noise"
    which = "its edit changes no" if count == 1 else f"none of its {count} edits changes an"
    return f"{which} objective beyond noise"


def left_out(found: Explanation) -> list[tuple[str, Genes]]:
    """What is said of the edits that are not kept, and of which."""
    left, gone = found.left_out, [s.gene for s in found.said if not s.kept]
    lines: list[tuple[str, Genes]] = [("No effect beyond noise", left.neutral)]
    for group in left.together:
        others = "the other" if len(group) == 2 else "the others" if len(group) > 2 else "the others left out"
        lines.append((f"No effect beyond noise together, but not without {others}", group))
    lines.append(("Better without", left.harmful))
    lines.append(("Left out, and not measured one by one", left.unknown))
    return [(text, genes) for text, genes in lines if genes and gone]


def listed(genes: Genes) -> str:
    """The numbers of edits as they are shown: "1, 3"."""
    return ", ".join(str(gene + 1) for gene in genes)


def interval(value: Estimate | None, scale: Scale) -> str:
    """ "-12.3 ±0.7 %", half the interval after the sign; "-" where nothing is known."""
    if value is None:
        return "-"
    mean = scale.text(value.mean)
    if value.low == value.high:
        return mean
    half = (scale.shown(value.high) - scale.shown(value.low)) / 2
    return f"{mean.removesuffix(' %')} ±{half:.1f} %" if scale.relative else f"{mean} ±{half:.4f}"


def ending(effect: Effect) -> str:
    """How it fails alone, and how the variant fails without it."""
    parts = [f"alone: {effect.alone_ends}"] if effect.alone_ends else []
    parts += [f"without it: {effect.without_ends}"] if effect.without_ends else []
    return "; ".join(parts)


def epistasis(pair: Pair, scale: Scale) -> str:
    """How a pair works together in one objective, "" where it is what the pair does in all."""
    name = pair.names.get(scale.objective, "")
    return name if pair.name != ADDITIVE and name != ADDITIVE else ""


def _edits(found: Explanation, console: Console) -> None:
    for said in found.said:
        if not said.kept:
            continue
        meaning = f": {said.meaning}" if said.meaning else ""
        console.print(Text(f"  {said.gene + 1}. {said.words}{meaning}"), soft_wrap=True)
    for text, genes in left_out(found):
        if found.kept or text != "No effect beyond noise":
            console.print(Text(f"  {text}: {listed(genes)}", style="dim"))


def _columns(table: Table, scales: Iterable[Scale]) -> None:
    for scale in scales:
        table.add_column(scale.objective, justify="right")


def _effects(found: Explanation) -> Table:
    table = Table(box=None, title="Effect of each edit, below zero is better", title_justify="left", pad_edge=False)
    table.add_column("edit")
    table.add_column("")
    _columns(table, found.scales)
    for effect in found.effects:
        for label, values in (("in the variant", effect.within), ("alone", effect.alone)):
            cells = [interval(values.get(s.objective), s) for s in found.scales]
            table.add_row(str(effect.gene + 1) if label != "alone" else "", label, *cells)
        if ending(effect):
            table.add_row("", ending(effect))
    return table


def _pairs(found: Explanation) -> Table:
    table = Table(box=None, title="Pairs: more than the sum of both", title_justify="left", pad_edge=False)
    table.add_column("edits")
    table.add_column("")
    _columns(table, found.scales)
    for pair in found.pairs:
        label = f"{pair.genes[0] + 1} and {pair.genes[1] + 1}"
        cells = [f"{interval(pair.surplus.get(s.objective), s)} {epistasis(pair, s)}".strip() for s in found.scales]
        table.add_row(label, pair.ends or pair.name, *cells)
    return table


def _sums(found: Explanation) -> Table:
    table = Table(box=None, title="Against the base", title_justify="left", pad_edge=False)
    table.add_column("")
    _columns(table, found.scales)
    rows = {"all edits": [found.whole.get(s.objective) for s in found.scales]}
    rows |= (
        {
            "the edits that matter": [found.sums[s.objective].joint for s in found.scales],
            "sum of them alone": [found.sums[s.objective].alone for s in found.scales],
            "sum of them in the variant": [found.sums[s.objective].within for s in found.scales],
        }
        if found.kept
        else {}
    )
    for label, values in rows.items():
        table.add_row(label, *(interval(v, s) for v, s in zip(values, found.scales, strict=True)))
    return table


def _diff(found: Explanation, console: Console) -> None:
    for line in found.diff:
        if line.sign == "@":
            console.print(Text("  ...", style="dim"))
            continue
        text = f"{line.sign} {line.site:<8} {line.text}"
        text += f"   {line.where}" if line.where else ""
        console.print(Text(text, style=COLOURS[line.sign]), soft_wrap=True)
