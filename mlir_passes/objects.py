"""The object cache: one file a kernel, shared by all campaigns and workers of a machine."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlir_passes.graph import KernelGraph
from mlir_passes.llvm import host

PIPELINE_VERSION = 19  # raise it whenever lowering changes what a kernel's text compiles to


@dataclass(frozen=True)
class KernelObject:
    """Object bytes of a kernel, what it wants of the runner, and what the runner may do with it.

    workspace: bytes of arena workspace that it wants as its last buffer, 0 for none. shards: slices of its
    outermost parallel loop; two integers `begin, end` after the buffers say which it does, all with 0 and
    `shards`. With 1 it cannot be split and may ignore the two.
    """

    code: bytes
    workspace: int
    shards: int = 1


class ObjectCache:
    """Objects by kernel key, in memory and (with a folder) on disk, in a subfolder that names the CPU."""

    def __init__(self, folder: Path | None) -> None:
        machine = hashlib.sha256(f"{host().text} {PIPELINE_VERSION}".encode()).hexdigest()[:12]
        self._folder = folder / f"{host().cpu}-{machine}" if folder else None
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, KernelObject] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: str) -> KernelObject | None:
        """The object of a kernel, or None; a damaged file counts as none."""
        found = self._known.get(key) or self._read(key)
        if found is None:
            self.misses += 1
            return None
        self._known[key] = found
        self.hits += 1
        return found

    def put(self, key: str, made: KernelObject) -> None:
        """Keep an object; the file appears whole or not at all."""
        self._known[key] = made
        head = json.dumps({"workspace": made.workspace, "shards": made.shards, "sha": _digest(made)}).encode()
        self._write(f"{key}.o", head + b"\n" + made.code)

    @property
    def root(self) -> Path | None:
        """The folder that the cache was made with."""
        return self._folder.parent if self._folder else None

    def get_graph(self, key: str) -> KernelGraph | None:
        """The kernel graph that was kept under a key, or None; a damaged file counts as none."""
        path = self._folder / f"{key}.json" if self._folder else None
        if path is None or not path.is_file():
            return None
        try:
            return KernelGraph.from_json(json.loads(path.read_bytes()))
        except (ValueError, KeyError, TypeError):
            return None

    def put_graph(self, key: str, graph: KernelGraph) -> None:
        self._write(f"{key}.json", json.dumps(graph.to_json()).encode())

    def _write(self, name: str, content: bytes) -> None:
        if self._folder is None:
            return
        handle, temporary = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, self._folder / name)

    def _read(self, key: str) -> KernelObject | None:
        path = self._folder / f"{key}.o" if self._folder else None
        if path is None or not path.is_file():
            return None
        head, _, code = path.read_bytes().partition(b"\n")
        try:
            facts = json.loads(head)
            found = KernelObject(code, facts["workspace"], facts["shards"])
            return found if facts["sha"] == _digest(found) else None
        except (ValueError, KeyError, TypeError):
            return None


def _digest(made: KernelObject) -> str:
    return hashlib.sha256(f"{made.workspace} {made.shards}\n".encode() + made.code).hexdigest()[:16]
