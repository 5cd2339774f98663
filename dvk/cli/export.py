"""`dvk export`: the winner of a run as a package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder of a `dvk optimize` that found a winner; with --merged, of a training."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="Folder to write; its last part is the name, e.g. out/fused-norm-gelu."
        ),
    ],
    to: Annotated[str, typer.Option(help="What to write, see below.")] = "python",
    version: Annotated[str, typer.Option(help="Version of the package.")] = "1",
    license_name: Annotated[
        str, typer.Option("--license", help="hf: license of the kernel, e.g. apache-2.0.")
    ] = "other",
    repo_id: Annotated[
        str | None, typer.Option(help="hf: repository on the hub, owner/name; nothing is uploaded.")
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(
            help='vllm: the operator that the module computes, with its constants, e.g. "rms_norm(epsilon=1e-6)".'
        ),
    ] = None,
    bundle: Annotated[
        list[str] | None,
        typer.Option(
            help="Compile the kernels now, for native or x86-64-v3 (C++), sm_90 (CUDA) and the like. Repeatable."
        ),
    ] = None,
    merged: Annotated[
        bool,
        typer.Option(
            "--merged",
            help="Instead: merge the LoRA adapters of a training run, or of a folder, into whole weights.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for programs.")
    ] = False,
) -> None:
    """Write the winner of a run as a package, with its claim, tests made of the judge's inputs, and a benchmark.

    \b
    --to takes
      file     best.py alone, for --bundle
      python   a package for pip: the drop-in, its operator, tests, benchmark
      hf       Hugging Face kernels, edition 5: a layer for kernelize, with a build that loads from the folder
      vllm     a plugin of vLLM: the kernels as an implementation of the operator --op
    """
    if merged:
        from dvk.pipelines.export.merged import merge

        summary = merge(run, target)
        print(json.dumps(summary) if as_json else f"wrote whole weights to {summary['target']}")
        return
    from dvk.pipelines.export import ExportRequest, export

    request = ExportRequest(
        run=run,
        target=target,
        to=to,
        version=version,
        license=license_name,
        repo_id=repo_id,
        op=op,
        bundle=tuple(bundle or ()),
    )
    summary = export(request)
    if as_json:
        print(json.dumps(summary))
        return
    print(f"wrote {summary['name']} ({summary['form']}) to {summary['target']}")
    print(
        f"claim: {summary['speedup']:.2f}× [{summary['speedup_lo']:.2f}, {summary['speedup_hi']:.2f}] over eager on {summary['machine']}"
    )
    print(f"verdict: sha256 {summary['verdict_sha256']}")
