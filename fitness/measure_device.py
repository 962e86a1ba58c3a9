"""Measures this machine once: kernels of a few classes and sizes, copies, and the store that values are paged to."""

from __future__ import annotations

import errno
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from fitness.cpu import CpuRunner
from fitness.device import Device, KernelRate, PageTier
from fitness.errors import StoreError
from fitness.profile import host_profile
from mlir_passes.llvm import host
from mlir_passes.objects import ObjectCache
from mlir_passes.pipeline import canonical_text, compile_program

METHOD = "one thread, calls on the same data; least of {windows} windows' means"
PAGE_METHOD = (
    "pwrite and pread of {least} to {largest} in an unlinked file, through the page cache of the system; "
    "a line through the least of {windows} windows' medians of {times}"
)
_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = tuple(64 * _KIB << shift for shift in range(0, 9, 2))  # 64 KiB to 16 MiB
_SMALL = (4 * _KIB, 16 * _KIB)  # where there is room for less than two of those
_QUICK = 4 * _MIB  # of a store that is measured on the way to something else
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PAGE_WINDOWS, _PAGE_TIMES = 15, 3
_WINDOWS, _WINDOW_S = 9, 0.02
_COPY_BYTES = 64 * _MIB  # more than the caches hold

_MATMUL = """func.func @predict(%a: tensor<{n}x{n}xf32>, %b: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{n}x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %c = linalg.matmul ins(%a, %b : tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>)
    outs(%f : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  return %c : tensor<{n}x{n}xf32>
}}"""
_ADD = """func.func @predict(%a: tensor<{n}x{n}xf32>, %b: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %c = arith.addf %a, %b : tensor<{n}x{n}xf32>
  return %c : tensor<{n}x{n}xf32>
}}"""
_SUM = """func.func @predict(%a: tensor<{n}x{n}xf32>) -> tensor<{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}xf32>) -> tensor<{n}xf32>
  %c = linalg.reduce {{arith.addf}} ins(%a : tensor<{n}x{n}xf32>) outs(%f : tensor<{n}xf32>) dimensions = [1]
  return %c : tensor<{n}xf32>
}}"""
_NORM = """func.func @predict(%a: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}xf32>) -> tensor<{n}xf32>
  %x = math.exp %a : tensor<{n}x{n}xf32>
  %s = linalg.reduce {{arith.addf}} ins(%x : tensor<{n}x{n}xf32>) outs(%f : tensor<{n}xf32>) dimensions = [1]
  %w = tensor.empty() : tensor<{n}x{n}xf32>
  %b = linalg.broadcast ins(%s : tensor<{n}xf32>) outs(%w : tensor<{n}x{n}xf32>) dimensions = [1]
  %c = arith.divf %x, %b : tensor<{n}x{n}xf32>
  return %c : tensor<{n}x{n}xf32>
}}"""
_TURN = """func.func @predict(%a: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %e = tensor.empty() : tensor<{n}x{n}xf32>
  %c = linalg.transpose ins(%a : tensor<{n}x{n}xf32>) outs(%e : tensor<{n}x{n}xf32>) permutation = [1, 0]
  return %c : tensor<{n}x{n}xf32>
}}"""


@dataclass(frozen=True)
class Sample:
    """A kernel to measure: a class, the step that is nothing but this kernel, its arguments, its width."""

    family: str
    text: str
    arguments: int
    n: int

    @property
    def size(self) -> str:
        return f"{self.n}x{self.n}" + (f"x{self.n}" if self.family == "product" else "")


SAMPLES = tuple(
    Sample(family, text, arguments, n)
    for family, text, arguments, widths in (
        ("product", _MATMUL, 2, (64, 256, 512)),
        ("elementwise", _ADD, 2, (64, 256, 1024)),
        ("reduction", _SUM, 1, (64, 256, 1024)),
        ("rows (softmax)", _NORM, 1, (64, 256, 1024)),
        ("transposition", _TURN, 1, (64, 256, 1024)),
    )
    for n in widths
)


def measure_device(
    page_dir: Path, on_part: Callable[[str], None] = lambda _: None, samples: Sequence[Sample] = SAMPLES
) -> Device:
    """This machine, measured on one thread; `on_part` hears of each part before it begins."""
    on_part(f"page store in {page_dir}")
    page = measure_page(page_dir)
    on_part("copies")
    copy = copy_bytes_per_s()
    kernels: list[KernelRate] = []
    for sample in samples:
        on_part(f"{sample.family} {sample.size}")
        kernels.append(measure_kernel(sample))
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return Device(host().cpu, when, METHOD.format(windows=_WINDOWS), tuple(kernels), copy, page)


def page_tier(page_dir: Path | None = None, cache: Path | None = None) -> PageTier:
    """The store in a folder (default: where temporary files go): as `gevo profile` measured it, if it did so on the
    same file system, else measured now, in less than a second."""
    folder, device = page_dir or Path(tempfile.gettempdir()), host_profile(cache)
    if device is not None and _file_system(folder) == device.page.device:
        return device.page
    return measure_page(folder, _QUICK)


def measure_page(folder: Path, largest: int = _SIZES[-1]) -> PageTier:
    """The store in a folder, by transfers of at most so many bytes, or of what it has room for; raises StoreError where
    no file can be made there. The file is gone at once."""
    device = _file_system(folder)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            largest = _reserved(file.fileno(), max(largest, _SMALL[0]))
            sizes = [size for size in _SIZES if size <= largest]
            sizes = sizes if len(sizes) > 1 else [size for size in (*_SMALL, _SIZES[0]) if size <= largest]
            data = memoryview(bytearray(b"gevo" * (sizes[-1] // 4)))  # written once: all its pages are there
            _write(file.fileno(), data)  # the first time it finds no pages
            out = [_transfer(_write, file.fileno(), data[:size]) for size in sizes]
            back = [_transfer(_read, file.fileno(), data[:size]) for size in sizes]
    except OSError as error:
        todo = "Name a folder with --page-dir that you may write to and that has room"
        raise StoreError(f"cannot page to it: {error.strerror}", str(folder), todo) from error
    method = PAGE_METHOD.format(
        least=_words(sizes[0]), largest=_words(sizes[-1]), windows=_PAGE_WINDOWS, times=_PAGE_TIMES
    )
    return PageTier(str(folder), device, *line(sizes, out), *line(sizes, back), method)


def _words(size: int) -> str:
    return f"{size // _MIB} MiB" if size >= _MIB else f"{size // _KIB} KiB"


def _reserved(handle: int, largest: int) -> int:
    """The bytes that the file now has room for: as many as asked, or less if the store is nearly full."""
    while True:
        try:
            os.posix_fallocate(handle, 0, largest)
        except OSError as error:
            if error.errno not in _FULL or largest <= _SMALL[0]:
                raise
            largest = max(largest // 4, _SMALL[0])
        else:
            return largest


def line(sizes: Sequence[int], times_s: Sequence[float]) -> tuple[float, float]:
    """Latency in seconds, not below 0, and bytes a second: of time = latency + size / bandwidth, the one with the least
    squares of relative errors. Of one size it has no latency."""
    times = np.array(times_s)
    if len(sizes) == 1:
        return 0.0, sizes[0] / float(times[0])
    slope, ones = np.array(sizes) / times, 1 / times
    (latency, inverse), *_ = np.linalg.lstsq(np.stack([ones, slope], axis=1), np.ones(len(times)), rcond=None)
    if latency < 0:
        latency, inverse = 0.0, slope.sum() / (slope @ slope)
    return float(latency), 1 / float(inverse)


def copy_bytes_per_s() -> float:
    """Bytes a second that one thread copies in memory, too many for the caches; each byte is read and written."""
    source, target = np.ones(_COPY_BYTES, np.uint8), np.zeros(_COPY_BYTES, np.uint8)
    return _COPY_BYTES / _least(lambda: np.copyto(target, source))


def measure_kernel(sample: Sample) -> KernelRate:
    """Seconds of one call of a kernel as it is made by default."""
    text = canonical_text(sample.text.format(n=sample.n), "predict")
    program = compile_program(text, "predict", 0, sample.arguments, ObjectCache(None))
    runner = CpuRunner(program)
    rng = np.random.default_rng(0)
    runner.write_batch([rng.random(view.shape, np.float32) for view in runner.batch])
    calls = 1
    while (took := _seconds(partial(runner.run, calls))) < _WINDOW_S / 4:
        calls *= 2
    calls = max(1, round(calls * _WINDOW_S / took))
    time_s = _least(lambda: runner.run(calls)) / calls
    kernels = [program.kernels[call.kernel] for call in program.plan.calls]
    moved = sum(k.bytes_read + k.bytes_written for k in kernels)
    return KernelRate(sample.family, sample.size, time_s, sum(k.flops for k in kernels), moved)


def _file_system(folder: Path) -> int:
    try:
        return folder.stat().st_dev
    except OSError as error:
        raise StoreError(f"no such page folder: {error.strerror}", str(folder), "Make it, or name another") from error


def _transfer(move: Callable[[int, memoryview], None], handle: int, data: memoryview) -> float:
    """Seconds of a transfer: the least of some windows' medians, which a busy core disturbs least."""
    windows = [[_seconds(lambda: move(handle, data)) for _ in range(_PAGE_TIMES)] for _ in range(_PAGE_WINDOWS)]
    return min(map(statistics.median, windows))


def _least(work: Callable[[], object]) -> float:
    return min(_seconds(work) for _ in range(_WINDOWS))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) * 1e-9


def _write(handle: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], done)


def _read(handle: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.preadv(handle, [data[done:]], done)
