"""Compile rendered kernels for sm_90 on a machine that may have no GPU; used by a child of test_triton.py."""

from __future__ import annotations

from typing import Any

from dvk.composer import triton as renderer
from dvk.composer.kernel import Kernel
from tests.composer.triton_programs import HEADER, load

POINTERS = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "float64": "*fp64", "int64": "*i64", "int32": "*i32",
            "int16": "*i16", "int8": "*i8", "uint8": "*u8", "bool": "*i1"}


def compile_sm90(kernel: Kernel, schedule: dict[str, Any]) -> list[dict[str, Any]]:
    """The assembly texts of every function of the kernel, all pointers taken to be 16-byte aligned as torch allocates them."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    functions, _ = renderer.functions(kernel, schedule)
    module = load(f"{HEADER}\n{renderer.prelude([kernel])}\n\n{renderer.render(kernel, schedule)}")
    types = {**{f"a{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.inputs)},
             **{f"o{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.outputs)}}
    found = []
    for function in functions:
        signature = {p: types.get(p) or POINTERS[p.removeprefix("part_")] for p in function.params}
        aligned = {(n,): [["tt.divisibility", 16]] for n in range(len(function.params))}
        source = ASTSource(getattr(module, function.name), signature=signature, attrs=aligned)
        found.append(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": function.warps}).asm)
    return found
