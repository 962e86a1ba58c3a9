"""Names and what they are, one below the other."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table


def print_pairs(pairs: Mapping[str, str], console: Console) -> None:
    """A line a pair; long texts go on under their beginning."""
    shown = Table(box=None, show_header=False, pad_edge=False)
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, text in pairs.items():
        shown.add_row(name, text)
    console.print(shown, highlight=False)
