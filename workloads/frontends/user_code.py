"""The user's file: loaded as a module, its exceptions turned into one message that names file and line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from workloads.errors import WorkloadError
from workloads.frontends.base import missing
from workloads.workload import Workload


@contextmanager
def user_code(path: Path, doing: str) -> Generator[None]:
    """Runs code of the user's: what it raises comes out as a WorkloadError at the last line inside `path`."""
    try:
        yield
    except WorkloadError:
        raise
    except ModuleNotFoundError as error:
        raise missing(error, str(path)) from error
    except Exception as error:
        line = _last_line_in(path, error)
        first = str(error).strip().partition("\n")[0]
        raise WorkloadError(
            f"{type(error).__name__} while {doing}: {first}",
            f"{path}:{line}" if line else str(path),
            "Mend it there, and try again",
        ) from error


def load_module(path: Path) -> ModuleType:
    """The Python file `path` as a module; as for a script, its neighbours can be imported."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"workload_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with user_code(path, "loading the file"):
        spec.loader.exec_module(module)
    return module


def load_workload(path: Path, name: str) -> Workload:
    """The `Workload` named `name` in the Python file `path`."""
    found = vars(load_module(path))
    if name not in found:
        names = [n for n, value in found.items() if isinstance(value, Workload)]
        todo = f"There is: {', '.join(names)}" if names else "Write workload = Workload(init=..., step=...) there"
        raise WorkloadError(f"no object {name!r} in this file", str(path), todo)
    workload = found[name]
    if not isinstance(workload, Workload):
        kind = type(workload).__name__
        raise WorkloadError(f"{name!r} is a {kind}, not a Workload", str(path), "Write Workload(init=..., step=...)")
    return workload


def _last_line_in(path: Path, error: Exception) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None
