"""What a candidate's exception says: its status and text, and the first error of the compiler that it carries."""

from __future__ import annotations

from typing import Any

from dvk.crashes import text_of
from dvk.harness.toolchain.compiler_log import MAX_CHARS, first_error
from dvk.tasks.sourcefile import blame

COMPILERS = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CalledProcessError",
    "PTXASError",
    "CompileError",
)
SIGNS = (
    "Error building extension",
    "NVRTC failed",
    "Kernel compilation failed",
    "nvrtc: error",
    "NVRTC_ERROR_COMPILATION",
)
"""Words in messages of torch's and cupy's CUDA compilation."""


def compiler_says(error: BaseException) -> str | None:
    """Return the first error of g++, nvcc, NVRTC or Triton, if one of them refused: many candidates compile only at their first call."""
    seen: BaseException | None = error
    before: list[BaseException] = []
    while seen is not None and not any(seen is one for one in before):  # causes may be cyclic
        before.append(seen)
        kind, text = type(seen), text_of(seen)
        if (
            kind.__module__.startswith("triton.compiler")
            or kind.__name__ in COMPILERS
            or any(sign in text for sign in SIGNS)
        ):
            printed = [getattr(seen, name, None) for name in ("stderr", "output", "log")]
            log = next((one for one in printed if isinstance(one, (bytes, str)) and one), text)
            log = log.decode(errors="replace") if isinstance(log, bytes) else log
            return f"{kind.__name__}: {first_error(log) or text[:MAX_CHARS]}"
        seen = seen.__cause__ or seen.__context__
    return None


def failure(error: BaseException) -> dict[str, Any]:
    """Return status, stage (null: where it happened) and text of a candidate's exception."""
    said = compiler_says(error)
    return {
        "status": "compile_error" if said else "launch_error",
        "stage": "compile" if said else None,
        "error": said or blame(error),
    }
