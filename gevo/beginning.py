"""What a search begins with beside single edits: genomes that an earlier run of the same step found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gevo.files import write_text
from gevo.genome import Genome

FILE = "beginning.json"


def save_beginning(genomes: Sequence[Genome], folder: Path) -> None:
    write_text(folder / FILE, json.dumps([genome.to_json() for genome in genomes]))


def load_beginning(folder: Path) -> list[Genome]:
    """Those of the run in `folder`; none if it begins with single edits only."""
    path = folder / FILE
    return [Genome.from_json(data) for data in json.loads(path.read_text())] if path.is_file() else []
