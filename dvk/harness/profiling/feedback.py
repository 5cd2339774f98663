"""Profile text for the author of the next candidate: at most a dozen lines, the most useful first. Pure."""

from __future__ import annotations

from dvk.harness.profiling.record import KernelTime, Profile

MAX_LINES = 12
SHOWN = 4
"""Most kernels listed by name."""
SMALL = 0.005
"""Share of the time below which kernels are only counted."""
LOW_OCCUPANCY = 0.25
NEAR = 0.7
"""Share of a ceiling from which on little can be gained there."""


def feedback(profile: Profile) -> str:
    """Return facts for a kernel's author: names and figures, and only advice that follows from the figures."""
    lines = [_summary(profile), *_remarks(profile)]
    shown = [kernel for kernel in profile.kernels[:SHOWN] if kernel.share >= SMALL]
    for kernel in shown:
        if len(lines) < MAX_LINES - 1:
            lines.append(_kernel(kernel))
            lines += [
                f"  {text}"
                for text in (_launch(kernel, profile), _counters(kernel))
                if text and len(lines) < MAX_LINES - 2
            ]
    if left := profile.kernels[len(shown) :]:
        lines.append(
            f"{len(left)} more take {_ms(sum(k.device_ms for k in left))} ({sum(k.share for k in left):.0%}) together"
        )
    return "\n".join(lines[:MAX_LINES])


def _summary(profile: Profile) -> str:
    where = "on the device" if profile.device == "cuda" else "computing"
    text = f"a call takes {_ms(profile.wall_ms)}: {_ms(profile.device_ms)} {where}, {_ms(profile.host_ms)} in Python and launches"
    if profile.coverage is not None:
        text += f"; own kernels are {profile.coverage:.0%} of the {'device time' if profile.device == 'cuda' else 'computing'}"
    if profile.floor_ms:
        text += f"; memory and arithmetic allow {_ms(profile.floor_ms)}"
    return text


def _remarks(profile: Profile) -> list[str]:
    result = []
    spilling = [kernel for kernel in profile.kernels if kernel.spill_bytes]
    if spilling:
        names = ", ".join(
            f"{_name(kernel)} ({kernel.spill_bytes} bytes a thread)" for kernel in spilling[:3]
        )
        result.append(f"registers spill to memory in {names}")
    launched = sum(kernel.count for kernel in profile.kernels)
    if profile.device == "cuda" and profile.host_ms > profile.device_ms and launched > 1:
        result.append(
            f"the device waits for the host most of the time: {launched:.0f} launches a call; fewer, larger kernels would help"
        )
    library = [
        kernel for kernel in profile.kernels if kernel.origin == "library" and kernel.share >= 0.1
    ]
    if library and profile.coverage:
        result.append(
            "PyTorch still does "
            + ", ".join(f"{_name(kernel)} ({kernel.share:.0%})" for kernel in library[:3])
        )
    return result


def _kernel(kernel: KernelTime) -> str:
    count = f" ×{kernel.count:.3g}" if kernel.count != 1 else ""
    text = f"{_name(kernel)}{count} [{kernel.origin}]: {_ms(kernel.device_ms)} ({kernel.share:.0%})"
    if kernel.gbps:
        text += f", about {kernel.gbps:.0f} GB/s" + (
            f" = {kernel.memory_share:.0%} of memory bandwidth" if kernel.memory_share else ""
        )
    if kernel.gflops and (kernel.compute_share is None or kernel.compute_share >= 0.02):
        text += f", {kernel.gflops / 1e3:.3g} TFLOP/s" + (
            f" = {kernel.compute_share:.0%} of the peak" if kernel.compute_share else ""
        )
    if max(kernel.memory_share or 0.0, kernel.compute_share or 0.0) >= NEAR:
        text += ": near the limit"
    return text


def _launch(kernel: KernelTime, profile: Profile) -> str:
    if kernel.origin != "own" or kernel.threads is None or kernel.blocks is None:
        return ""
    text = f"{kernel.blocks} blocks × {kernel.threads} threads, {kernel.registers} registers, {kernel.shared_bytes} bytes shared"
    if kernel.occupancy is not None:
        text += f", occupancy {kernel.occupancy:.0%}"
        if kernel.occupancy <= LOW_OCCUPANCY and kernel.limiter:
            text += f" (limited by {kernel.limiter})"
    if profile.num_multiprocessors and kernel.blocks < profile.num_multiprocessors:
        text += f"; {profile.num_multiprocessors - kernel.blocks} of {profile.num_multiprocessors} multiprocessors have no block"
    elif kernel.waves is not None and 1 < kernel.waves < 2:
        text += f"; {kernel.waves:.2f} waves: the last one is short"
    return text


def _counters(kernel: KernelTime) -> str:
    shown = [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in kernel.counters.items()
    ]
    return "Nsight Compute: " + ", ".join(shown) if shown else ""


def _name(kernel: KernelTime) -> str:
    """Return a kernel's name, short and on one line."""
    plain = "".join(c if c.isprintable() else "?" for c in kernel.name)
    return plain if len(plain) <= 60 else f"{plain[:57]}…"


def _ms(ms: float) -> str:
    return f"{ms * 1e3:.3g} µs" if ms < 1 else f"{ms:.3g} ms"
