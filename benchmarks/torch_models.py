"""The shipped workloads' training steps written in PyTorch, of the same shapes: for their time, not their results."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false
# PyTorch is an extra

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.workload import ArraySpec


def mlp(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Module:
    first = [nn.Conv2d(1, 6, 5, padding=2, bias=False), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(6, 16, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), mlp(400, 120, 84, 10))


def convolve_and_norm(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    filters = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [filters, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """last(change(x) + shortcut(x)); no shortcut where there is none."""

    def __init__(self, change: nn.Module, shortcut: nn.Module | None, last: nn.Module) -> None:
        super().__init__()
        self.change, self.shortcut, self.last = change, shortcut, last

    def forward(self, x: Tensor) -> Tensor:
        changed = self.change(x)
        return self.last(changed if self.shortcut is None else changed + self.shortcut(x))


def classifier(channels: int, *parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def mobilenet() -> nn.Module:
    blocks = []
    for inputs, outputs, stride in ((16, 24, 2), (24, 24, 1), (24, 32, 2)):
        hidden = 2 * inputs
        wide = [*convolve_and_norm(inputs, hidden, 1), nn.ReLU6()]
        deep = [*convolve_and_norm(hidden, hidden, 3, stride, hidden), nn.ReLU6()]
        change = nn.Sequential(*wide, *deep, *convolve_and_norm(hidden, outputs, 1))
        blocks.append(Residual(change, nn.Identity() if inputs == outputs else None, nn.Identity()))
    return classifier(32, *convolve_and_norm(1, 16), nn.ReLU6(), *blocks)


def resnet18() -> nn.Module:
    width = inputs = 16
    blocks = []
    for stage in range(4):
        for block in range(2):
            outputs, stride = width << stage, 2 if stage and not block else 1
            first = [*convolve_and_norm(inputs, outputs, 3, stride), nn.ReLU()]
            change = nn.Sequential(*first, *convolve_and_norm(outputs, outputs))
            smaller = nn.Sequential(*convolve_and_norm(inputs, outputs, 1, stride))
            blocks.append(Residual(change, smaller if stride > 1 else nn.Identity(), nn.ReLU()))
            inputs = outputs
    return classifier(inputs, *convolve_and_norm(3, width), nn.ReLU(), *blocks)


WIDTH, HEADS, LENGTH = 64, 4, 32


def heads(x: Tensor) -> Tensor:
    """(rows, length, width) as (rows, heads, length, size)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, h: Tensor) -> Tensor:
        query, key, value = map(heads, self.qkv(self.norm1(h)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        return h + self.wide(self.norm2(h))


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(257, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH) / 8)
        self.layers = nn.Sequential(BertLayer(), BertLayer(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.bytes(x) + self.places)


class LlamaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, 176, bias=False), nn.Linear(WIDTH, 176, bias=False)
        self.down = nn.Linear(176, WIDTH, bias=False)
        half = WIDTH // HEADS // 2
        angle = torch.arange(LENGTH)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
        self.cos, self.sin = angle.cos(), angle.sin()  # no buffers: they are no state

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)

    def forward(self, h: Tensor) -> Tensor:
        n = self.norm1(h)
        query, key, value = heads(self.query(n)), heads(self.key(n)), heads(self.value(n))
        mixed = F.scaled_dot_product_attention(self.rotate(query), self.rotate(key), value, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        n = self.norm2(h)
        return h + self.down(F.silu(self.gate(n)) * self.up(n))


def llama() -> nn.Module:
    last = [nn.RMSNorm(WIDTH, 1e-5), nn.Linear(WIDTH, 256, bias=False)]
    return nn.Sequential(nn.Embedding(256, WIDTH), LlamaLayer(), LlamaLayer(), *last)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "digits": lambda: mlp(64, 128, 10),
    "twofc": lambda: mlp(784, 128, 10),
    "mlp": lambda: mlp(784, 512, 512, 10),
    "lenet": lenet,
    "mobilenet": mobilenet,
    "resnet18": resnet18,
    "bert": Bert,
    "llama": llama,
}
ADAM = {"digits", "bert", "llama"}


class TorchStep:
    """Training steps of a workload on one batch: idiomatic eager PyTorch, or that through torch.compile."""

    def __init__(self, name: str, state: Sequence[ArraySpec], batch: Sequence[np.ndarray], compiled: bool) -> None:
        if name not in MODELS:
            raise NotImplementedError(f"{name} is not written in benchmarks/torch_models.py")
        self._model = MODELS[name]()
        self._check_size(state, 3 if name in ADAM else 1)
        kind = torch.optim.Adam if name in ADAM else torch.optim.SGD
        self._optimizer = kind(self._model.parameters(), lr=1e-3, foreach=True)
        self._initial = [p.detach().clone() for p in self._model.parameters()]
        x, y = (torch.from_numpy(np.array(a)) for a in batch)
        # NHWC read as NCHW is PyTorch's channels-last form, the faster one on a CPU
        self._x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
        if x.ndim == 4:
            self._model.to(memory_format=torch.channels_last)
        self._y = y.long().flatten()
        self.run = torch.compile(self._step) if compiled else self._step

    def _check_size(self, state: Sequence[ArraySpec], copies: int) -> None:
        """Raise unless the workload's state has as many floats: parameters, their moments, running statistics."""
        statistics = sum(b.numel() for b in self._model.buffers() if b.is_floating_point())
        ours = copies * sum(p.numel() for p in self._model.parameters()) + statistics + (copies > 1)
        theirs = sum(math.prod(s.shape) for s in state)
        if ours != theirs:
            raise ValueError(f"the state has {theirs} numbers, the model in PyTorch {ours}: update torch_models.py")

    def _step(self) -> None:
        scores = self._model(self._x)
        F.cross_entropy(scores.flatten(0, -2), self._y, ignore_index=-1).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    @torch.no_grad()
    def reset(self) -> None:
        """The parameters as they were."""
        for parameter, initial in zip(self._model.parameters(), self._initial, strict=True):
            parameter.copy_(initial)
