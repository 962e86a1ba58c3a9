"""Which ops of a step are not what they were, line by line, with a little around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from mlir_passes.structure import Line, Structure

AROUND = 2  # unchanged ops shown before and after a change
_RETURN = "return"


@dataclass(frozen=True)
class Shown:
    """One line of a diff. sign: " ", "-" or "+". site: of the op, "return" for what the step gives back; where: the
    user's line, "" where it is not known. Lines with sign "@" stand for what is left out."""

    sign: str
    site: str
    text: str
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def diff(base: Structure, variant: Structure, where: Mapping[str, str], names: Mapping[str, str]) -> list[Shown]:
    """The changed ops. where: the user's line by site; names: what a reader calls an argument ("arg3")."""
    old, new = _lines(base, names), _lines(variant, names)
    found: list[Shown] = []
    matcher = SequenceMatcher(None, [k for k, _ in old], [k for k, _ in new], autojunk=False)
    for group in matcher.get_grouped_opcodes(AROUND):
        if found:
            found.append(Shown("@", "", "..."))
        for tag, i, j, k, m in group:
            if tag == "equal":
                found += [_shown(" ", line, where, names) for _, line in old[i:j]]
                continue
            before = [_shown("-", line, where, names) for _, line in old[i:j]]
            found += before
            alike = {(s.site, s.text) for s in before}
            found += [_marked(_shown("+", line, where, names), alike) for _, line in new[k:m]]
    return found


def changed_sites(base: Structure, variant: Structure) -> set[str]:
    """Sites of ops that are gone, new, or not what they were."""
    old = {line.site: line.key for line in base.lines}
    new = {line.site: line.key for line in variant.lines}
    return {site for site in old.keys() | new.keys() if old.get(site) != new.get(site)}


def _lines(step: Structure, names: Mapping[str, str]) -> list[tuple[str, Line]]:
    found = [(f"{line.site}|{line.key}", line) for line in step.lines]
    for index, value in enumerate(step.returns):
        # a result stands under its own name, or every later one would move when one changes
        text = f"{names.get(f'return{index}', f'result {index}')} = {value}"
        line = Line(_RETURN, _RETURN, text, text, (value,), (), (), "")
        found.append((f"{_RETURN}|{text}", line))
    return found


def _shown(sign: str, line: Line, where: Mapping[str, str], names: Mapping[str, str]) -> Shown:
    return Shown(sign, short(line.site), readable(line.text, names), where.get(line.site.partition("'")[0], ""))


def _marked(line: Shown, alike: set[tuple[str, str]]) -> Shown:
    """The line, or where it reads like the one before with what differs unsaid, with a note."""
    return replace(line, text=f"{line.text}, indexed otherwise") if (line.site, line.text) in alike else line


def readable(text: str, names: Mapping[str, str]) -> str:
    """A line's text with arguments by their names and first results by their op."""
    named = re.sub(r"\barg\d+\b", lambda found: names.get(found[0], found[0]), text)
    return short(re.sub(r"((?:op|new)\d[\w'.]*)#0", r"\1", named))


def short(text: str) -> str:
    """Without the numbers that tell copies of one op apart."""
    return re.sub(r"\b(op\d+)'\d+", r"\1'", text)


def plain(shown: Sequence[Shown]) -> str:
    """The diff as text, the user's lines at the right."""
    width = max((len(s.text) for s in shown), default=0)
    rows: list[str] = []
    for line in shown:
        label = f"{line.sign} {line.site:<8}" if line.sign != "@" else "  ..."
        body = "" if line.sign == "@" else line.text
        rows.append(f"{label} {body:<{min(width, 100)}}  {line.where}".rstrip())
    return "\n".join(rows)
