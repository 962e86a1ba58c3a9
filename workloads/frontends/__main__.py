"""`python -m workloads.frontends NAME PATH OBJECT FOLDER ARRAYS`: fills FOLDER with the prepared workload.

A failure that the user can mend is written to FOLDER/error.json; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from workloads.errors import WorkloadError
from workloads.frontends.base import frontend, save
from workloads.frontends.user_code import load_workload


def main(name: str, path: Path, object_name: str, folder: Path, arrays: Path) -> int:
    opened = record_opened_files()
    try:
        if path.suffix == ".mlir":
            from workloads.frontends.mlir_file import trace_file

            traced = trace_file(name, path)
        else:
            workload = load_workload(path, object_name)
            traced = frontend(workload.frontend, str(path))(name, workload, path)
        save(traced, folder, arrays)
    except WorkloadError as error:
        (folder / "error.json").write_text(json.dumps(vars(error)))
        return 1
    sources = sorted(files_read(opened, path, [folder, arrays]))
    (folder / "sources.json").write_text(json.dumps(sources))
    return 0


def record_opened_files() -> set[str]:
    """A set that fills with every path this process opens from now on: what the result was made from."""
    opened: set[str] = set()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            opened.add(os.fsdecode(args[0]))

    sys.addaudithook(hook)
    return opened


def files_read(opened: set[str], source: Path, written: list[Path]) -> set[str]:
    """The user's modules and data files among `opened`: no libraries, no compiled copies, nothing of our own."""
    modules = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    paths = sysconfig.get_paths()
    roots = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    roots += [str(Path(__file__).parent.parent), "/proc", "/sys", "/dev", "/etc", *map(str, written)]
    found = {os.path.abspath(file) for file in opened | modules if file and not file.endswith(".pyc")}
    return {
        file
        for file in found - {str(source)}
        if os.path.isfile(file) and not any(Path(file).is_relative_to(root) for root in roots)
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5])))
