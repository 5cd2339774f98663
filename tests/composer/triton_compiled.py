"""Compile rendered kernels for sm_90 on a machine that may have no GPU; used by a child of test_triton.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dvk.composer.codegen import triton as renderer
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonSchedule
from tests.composer.triton_programs import HEADER, load

POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float64": "*fp64",
    "int64": "*i64",
    "int32": "*i32",
    "int16": "*i16",
    "int8": "*i8",
    "uint8": "*u8",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "bool": "*i1",
}


def compile_sm90(kernel: Kernel, schedule: TritonSchedule) -> list[dict[str, Any]]:
    """The assembly texts of every function of the kernel; pointers are 16-byte aligned, as torch allocates them."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    functions, _ = renderer.functions(kernel, schedule)
    text = renderer.render(kernel, schedule)
    module = load(f"{HEADER}\n{renderer.prelude([kernel], text)}\n\n{text}")
    types = {
        **{f"a{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.inputs)},
        **{f"o{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.outputs)},
    }
    found = []
    for function in functions:
        options = {
            "num_warps": function.warps,
            "enable_fp_fusion": "tl.dot(" in function.text,
            "maxnreg": function.registers or None,
        }  # like dvk_launcher
        signature = {p: types.get(p) or POINTERS[p.removeprefix("part_")] for p in function.params}
        aligned = {(n,): [["tt.divisibility", 16]] for n in range(len(function.params))}
        source = ASTSource(getattr(module, function.name), signature=signature, attrs=aligned)
        found.append(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm)
    return found


def big(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype)


VECTORIZED: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]], str]] = {
    "pointwise": (lambda x, b: F.gelu(x + b), lambda: [big(1024, 2048), big(2048)], ".v4"),
    "pointwise_odd": (lambda x, b: F.silu(x + b), lambda: [big(1000, 1001), big(1001)], ".v4"),
    "pointwise_half": (
        lambda x, y: torch.tanh(x) * y,
        lambda: [big(1024, 2048, dtype=torch.bfloat16) for _ in range(2)],
        ".v4",
    ),
    "transpose": (lambda x, y: x.t() + y, lambda: [big(1024, 512), big(512, 1024)], ".v4"),
    "row": (lambda x, w: F.layer_norm(x, (2048,), w), lambda: [big(512, 2048), big(2048)], ".v4"),
    "rows_together": (lambda x: torch.softmax(x, -1), lambda: [big(8192, 64)], ".v4"),
    "column": (lambda x: torch.softmax(x, 1), lambda: [big(16, 64, 1024)], ".v4"),
    "loss": (lambda x, y: ((x - y) ** 2).mean(), lambda: [big(512, 2048), big(512, 2048)], ".v4"),
    "cross_entropy": (
        F.cross_entropy,
        lambda: [big(256, 4096), torch.zeros(256, dtype=torch.int64)],
        ".v4",
    ),
    "few_long_rows": (lambda x: torch.softmax(x, -1), lambda: [big(4, 65536)], ".v4"),
    "mask_and_types": (
        lambda x, m: torch.amax(x.masked_fill(m, 0.0), 1),
        lambda: [big(64, 512, dtype=torch.float16), big(64, 512) > 0],
        ".v",
    ),
    # Operands are fetched by asynchronous copies; `cg` copies exactly 16 bytes.
    "matrix_product": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        lambda: [big(512, 512), big(256, 512), big(256)],
        "cp.async.cg",
    ),
    "matrix_vector": (
        lambda x, w, b: torch.relu(x @ w + b),
        lambda: [big(1, 1024), big(1024, 512), big(512)],
        ".b32",
    ),
    "double_product": (
        lambda x: torch.prod(torch.expm1(x), 1) + torch.amin(x, 1),
        lambda: [big(64, 256, dtype=torch.float64)],
        ".v2",
    ),
}
