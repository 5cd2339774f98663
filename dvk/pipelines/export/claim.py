"""What was proved, in words, for the README of an export."""

from __future__ import annotations

from dvk.pipelines.export.proven import ProvenRun
from dvk.records import TensorSpec


def text(run: ProvenRun) -> str:
    """The claim, its interval, the machine, the checks and the hash of the verdict, as Markdown."""
    timing, verdict = run.timing, run.verdict
    level = f"{100 * timing.claim.level:.0f} %" if timing.claim is not None else "95 %"
    rows = [
        f"| speedup over eager PyTorch | **{run.speedup.value:.2f}×**, {level} interval [{run.speedup.lo:.2f}, {run.speedup.hi:.2f}] |",
        f"| one call | {timing.candidate_ms:.4g} ms, eager {timing.reference_ms:.4g} ms (medians) |",
        *(
            f"| speedup over `{name}` | {one.value:.2f}× [{one.lo:.2f}, {one.hi:.2f}] |"
            for name, one in timing.baselines.items()
        ),
        f"| machine | {verdict.machine} |",
        f"| inputs | {'; '.join(inputs(task.inputs) for task in run.tasks)} |",
        f"| mode | {run.task.mode or 'a function'} |",
        f"| checks | {verdict.num_checks} sets of inputs, kinds: {', '.join(verdict.families) or 'native'} |",
        f"| largest error | {verdict.worst_error or 0:.1e} of the output's size, {verdict.tolerance or 0:.1e} admitted |",
        f"| kernels | {run.candidate.backend}{f', {run.candidate.line}' if run.candidate.line else ''} |",
        f"| made by | dvk {run.manifest.get('versions', {}).get('dvk', '')}, torch {run.manifest.get('versions', {}).get('torch', '')} |",
        f"| SHA-256 of `verdict.json` | `{run.digest}` |",
    ]
    return "\n".join(["| claim | |", "|---|---|", *rows])


def inputs(specs: tuple[TensorSpec, ...]) -> str:
    """Tensors as text: `x float32[64, 1024]`."""
    return ", ".join(
        f"`{spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]`" for spec in specs
    )
