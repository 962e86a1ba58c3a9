"""Object bytes to callable addresses in this process, through ORC of libLLVM's C API."""

from __future__ import annotations

import ctypes as c
import weakref
from functools import cache
from typing import Any

from fitness.errors import FitnessError
from mlir_passes import llvm

_PTR = c.c_void_p
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "LLVMOrcCreateLLJIT": (_PTR, (c.POINTER(_PTR), _PTR)),
    "LLVMOrcDisposeLLJIT": (_PTR, (_PTR,)),
    "LLVMOrcLLJITGetMainJITDylib": (_PTR, (_PTR,)),
    "LLVMOrcLLJITAddObjectFile": (_PTR, (_PTR, _PTR, _PTR)),
    "LLVMOrcLLJITLookup": (_PTR, (_PTR, c.POINTER(c.c_uint64), c.c_char_p)),
    "LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess": (_PTR, (c.POINTER(_PTR), c.c_char, _PTR, _PTR)),
    "LLVMOrcJITDylibAddGenerator": (None, (_PTR, _PTR)),
}


class Loader:
    """One LLJIT. Its code lives as long as this object, so who calls an address must hold the loader."""

    def __init__(self) -> None:
        lib = _library()
        jit, generator = _PTR(), _PTR()
        _check(lib.LLVMOrcCreateLLJIT(c.byref(jit), None), "no LLJIT")
        self._lib, self._jit = lib, jit
        self._dylib = lib.LLVMOrcLLJITGetMainJITDylib(jit)
        error = lib.LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(c.byref(generator), b"\0", None, None)
        _check(error, "no symbols of this process")
        lib.LLVMOrcJITDylibAddGenerator(self._dylib, generator)
        weakref.finalize(self, lib.LLVMOrcDisposeLLJIT, jit).atexit = False

    def add(self, data: bytes, name: str) -> None:
        """Make the symbols of one object file known; two objects with one symbol are an error."""
        buffer = llvm.memory_buffer(data, name)
        _check(self._lib.LLVMOrcLLJITAddObjectFile(self._jit, self._dylib, buffer), f"object {name} does not load")

    def address(self, symbol: str) -> int:
        """Where `symbol` stands; links what it needs."""
        out = c.c_uint64()
        _check(self._lib.LLVMOrcLLJITLookup(self._jit, c.byref(out), symbol.encode()), f"symbol {symbol} does not link")
        return out.value


@cache
def _library() -> c.CDLL:
    """libLLVM with the ORC prototypes, and libm made visible to the code that is loaded."""
    lib = llvm.library()
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    c.CDLL("libm.so.6", mode=c.RTLD_GLOBAL)
    return lib


def _check(error: int | None, what: str) -> None:
    if not error:
        return
    text = llvm.library().LLVMGetErrorMessage(error)
    raise FitnessError(f"{what}: {text.decode(errors='replace')}", "loader", "Compile the program again")
