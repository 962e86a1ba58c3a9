"""The choices that a campaign makes its kernels by: a JSON file in its folder, read when the base is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fitness.errors import FitnessError
from mlir_passes.kernels.choice import BLAS, Choice


def choices_text(choices: Mapping[str, Choice]) -> str:
    """The file's text."""
    return json.dumps({name: choice.to_json() for name, choice in sorted(choices.items())}, indent=1) + "\n"


def load_choices(path: str, threads: int = 1) -> dict[str, Choice]:
    """Choices by kernel; none for "". With more threads than one, none that has all of a kernel on one of them."""
    if not path:
        return {}
    try:
        data = json.loads(Path(path).read_text())
        found = {name: Choice.from_json(choice) for name, choice in data.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FitnessError(f"cannot be read: {error}", path, "Restore it from a copy, or start a new run") from error
    return {name: choice for name, choice in found.items() if threads == 1 or choice != BLAS}
