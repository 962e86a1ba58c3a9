"""`gevo profile`: measures this machine once, keeps what it found in the cache, and prints it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fitness.device import Device, device_file
from fitness.measure_device import SAMPLES, Sample, measure_device
from gevo.errors import INTERRUPTED, Unwritable
from gevo.files import write_json
from gevo.ticker import Ticker
from gevo.units import count, seconds
from workloads.cache import cache_folder


def profile(page_dir: Path | None, console: Console, samples: Sequence[Sample] = SAMPLES) -> int:
    """Measure this machine, keep and print what was found; returns the exit code. Interrupted, it keeps nothing."""
    folder = (page_dir or Path(tempfile.gettempdir())).absolute()
    ticker, parts = Ticker(console), len(samples) + 2
    done = 0

    def on_part(name: str) -> None:
        nonlocal done
        done += 1
        if ticker.due:
            ticker.show(f"part {done} of {parts}: {name}")

    console.print("Measuring this machine on one thread. Ctrl-C stops it and keeps nothing of it", highlight=False)
    try:
        with ticker:
            device = measure_device(folder, on_part, samples)
    except KeyboardInterrupt:
        console.print("Stopped; nothing was kept", highlight=False)
        return INTERRUPTED
    path = device_file(cache_folder(), device.cpu)
    _keep(path, device)
    for table in (kernel_table(device), page_table(device)):
        console.print(table, highlight=False)
    console.print(f"Copy in memory: {count(device.copy_bytes_per_s)}B/s, each byte read and written", highlight=False)
    console.print(f"Kernels: {device.method}. Store: {device.page.method}", highlight=False)
    console.print(f"Kept in {path}", highlight=False, soft_wrap=True)
    return 0


def kernel_table(device: Device) -> Table:
    """A line a kernel: what computes has a rate in flop/s, all have one in bytes/s."""
    shown = Table("kernel", "size", "time a call", "flop/s", "bytes/s", box=None, title=f"Kernels on {device.cpu}, f32")
    for column in shown.columns[2:]:
        column.justify = "right"
    for found in device.kernels:
        rate = count(found.flops / found.time_s) if found.flops else "-"
        shown.add_row(found.family, found.size, seconds(found.time_s), rate, count(found.bytes / found.time_s))
    return shown


def page_table(device: Device) -> Table:
    """What a transfer to and from the store takes."""
    page = device.page
    shown = Table("store", "latency", "bytes/s", "1 MiB takes", box=None, title=f"Page store in {page.folder}")
    for column in shown.columns[1:]:
        column.justify = "right"
    mib = 1 << 20
    shown.add_row("out", seconds(page.out_latency_s), count(page.out_bytes_per_s), seconds(page.out_s(mib)))
    shown.add_row("in", seconds(page.in_latency_s), count(page.in_bytes_per_s), seconds(page.in_s(mib)))
    return shown


def _keep(path: Path, device: Device) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, device.to_json())
    except OSError as error:
        todo = "Set GEVO_CACHE to a folder you may write to"
        raise Unwritable(f"cannot write the cache: {error.strerror}", path.parent, todo) from error
