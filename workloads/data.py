"""The real data sets of the shipped workloads, in fixed splits: {"train": (x, y), "validation": ..., "test": ...}.

`python -m workloads.data` (run by `make data`) fetches Fashion-MNIST from Debian's package of that name.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from workloads.cache import cache_folder, publish, temporary_folder
from workloads.errors import Kind, WorkloadError
from workloads.workload import Arrays

PACKAGE = "dataset-fashion-mnist"  # Debian main; MIT licence, Zalando SE
SYSTEM_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # where that package puts its files
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
BY_HAND = f"By hand: install Debian's package {PACKAGE}, or set GEVO_DATA to a folder that holds {', '.join(FILES)}"
SPLIT_SEED = 20200523  # any fixed number; this one is the date of the Debian package's snapshot


def digits() -> dict[str, Arrays]:
    """scikit-learn's 1797 real 8x8 digits: x (rows, 64) float32 in [0, 1], y int32; 1077/360/360 rows."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise WorkloadError(
            "scikit-learn is not installed, and the digits come with it",
            "digits",
            "Run: pip install 'gevo[jax]'",
            Kind.PACKAGE,
        ) from error
    images, labels = map(np.asarray, load_digits(return_X_y=True))
    x, y = (images / 16).astype(np.float32), labels.astype(np.int32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(x))
    parts = {"train": order[:1077], "validation": order[1077:1437], "test": order[1437:]}
    return {name: (x[rows], y[rows]) for name, rows in parts.items()}


def fashion_mnist(images: bool = False, validation_rows: int = 10_000) -> dict[str, Arrays]:
    """Fashion-MNIST: x float32 in [0, 1], (rows, 784) or with `images` (rows, 28, 28, 1), y int32.

    The 60,000 training rows are split by a fixed seed into 50,000 and 10,000, of which the first
    `validation_rows` are kept; the 10,000 test rows are the data set's own.
    """
    folder = fashion_mnist_folder()
    x, y, test_x, test_y = (_read_idx(folder / name) for name in FILES)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(x))
    train, validation = order[:50_000], order[50_000:][:validation_rows]

    def rows(images_: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Arrays:
        shape = (len(images_), 28, 28, 1) if images else (len(images_), 784)
        return (images_.reshape(shape).astype(np.float32) / np.float32(255), labels.astype(np.int32))

    return {
        "train": rows(x[train], y[train]),
        "validation": rows(x[validation], y[validation]),
        "test": rows(test_x, test_y),
    }


def fashion_mnist_32(
    channels: int = 1, validation_rows: int = 1_000, train_rows: int = 10_000, test_rows: int = 2_000
) -> dict[str, Arrays]:
    """Fashion-MNIST in CIFAR's form: x float32 (rows, 32, 32, channels), zeros around the image, equal channels.

    Of the rows that `fashion_mnist` gives, the first `train_rows`, `validation_rows` and `test_rows`: most networks
    of this kind see a few hundred in a training, and with three channels a row has 12 KiB.
    """
    most = {"train": train_rows, "validation": validation_rows, "test": test_rows}
    splits = fashion_mnist(images=True, validation_rows=validation_rows)

    def padded(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.repeat(np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0))), channels, axis=3)

    return {name: (padded(x[: most[name]]), y[: most[name]]) for name, (x, y) in splits.items()}


def fashion_mnist_folder() -> Path:
    """The folder with the four files: GEVO_DATA (or fashion-mnist in it), Debian's, or the one `make data` filled."""
    own = os.environ.get("GEVO_DATA")
    named = [Path(own), Path(own) / "fashion-mnist"] if own else []
    for folder in (*named, SYSTEM_FOLDER, _unpacked()):
        if all((folder / name).is_file() for name in FILES):
            return folder
    raise WorkloadError(
        "Fashion-MNIST is not on this machine", "fashion_mnist", f"Run `make data`. {BY_HAND}", Kind.DATA
    )


def fetch() -> Path:
    """The folder with the four files, after fetching and unpacking Debian's package if need be; needs no root."""
    try:
        return fashion_mnist_folder()
    except WorkloadError:
        pass
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise WorkloadError("apt-get and dpkg-deb are not on this machine", "make data", BY_HAND, Kind.DATA)
    with temporary_folder(cache_folder() / "data") as work:
        download = ["apt-get", "download", PACKAGE]
        done = _run(download, work)
        if done.returncode != 0 and os.geteuid() == 0:  # a fresh container has no package lists yet
            _run(["apt-get", "update"], work)
            done = _run(download, work)
        packages = list(work.glob("*.deb"))
        if done.returncode != 0 or not packages:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise WorkloadError(f"`{' '.join(download)}` failed ({reason})", "make data", BY_HAND, Kind.DATA)
        _run(["dpkg-deb", "-x", str(packages[0]), str(work / "root")], work)
        return publish(work / "root" / SYSTEM_FOLDER.relative_to("/"), _unpacked())


def _unpacked() -> Path:
    return cache_folder() / "data" / "fashion-mnist"


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _read_idx(path: Path) -> np.ndarray[Any, Any]:
    """The uint8 array in an idx file: magic number (last byte: rank), big-endian sizes, then the bytes."""
    raw = gzip.decompress(path.read_bytes())
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


if __name__ == "__main__":
    try:
        print(f"Fashion-MNIST: {fetch()}")
    except WorkloadError as problem:
        sys.exit(str(problem))
