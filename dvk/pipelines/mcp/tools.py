"""The tools: their names, what they take, what they say of themselves. Needs the SDK.

Their descriptions and those of their arguments are what a model reads, so they say what it must know to choose and to go on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import dvk
from dvk.errors import DvkError
from dvk.pipelines.mcp.running import CommandFailed, run
from dvk.skills import Library, markdown

INSTRUCTIONS = """\
dvk makes PyTorch code faster with kernels that are proved. `optimize` takes a file with an nn.Module (KernelBench format: class Model, \
get_inputs(), get_init_inputs(); or any class or function with `inputs`) and leaves a drop-in `best.py`. To write a kernel yourself, \
look for techniques with `skills_search`, write a file that defines `ModelNew`, and have `verify` compile, check and time it: a speedup \
counts when the lower end of its interval is above 1."""

Spec = Annotated[
    list[str],
    Field(description='Example inputs where the file has no get_inputs(): "x=float32[64,1024]".'),
]
Init = Annotated[list[str], Field(description="Constructor arguments: 512 or eps=1e-5.")]
Device = Annotated[
    Literal["cpu", "cuda"] | None, Field(description="Default: what the backend needs.")
]
Kind = Annotated[
    Literal["auto", "triton", "cuda", "cpp"], Field(description="What kernels are written in.")
]


def tools(library: Path | None) -> MCPServer:
    """The server with its tools; they work in the current folder.

    Args:
        library: the skills' file; None takes the default one.
    """
    server = MCPServer(
        "dvk", title="dvk", instructions=INSTRUCTIONS, version=dvk.__version__, log_level="WARNING"
    )
    add_verify(server)
    add_optimize(server, library)
    add_skills(server, library)
    return server


def add_verify(server: MCPServer) -> None:
    """`verify`."""

    @server.tool()
    async def verify(
        reference: Annotated[str, Field(description="The reference: model.py, or model.py:Name.")],
        context: Context,
        candidates: Annotated[list[str], Field(description="Files that define ModelNew.")] = [],  # noqa: B006 - the SDK makes a schema of it
        source: Annotated[
            str | None, Field(description="A candidate as text instead of a file.")
        ] = None,
        tier: Annotated[
            Literal["smoke", "search", "claim"],
            Field(
                description="smoke only checks, search times briefly, claim is "
                "reproducible and takes minutes."
            ),
        ] = "search",
        backend: Kind = "auto",
        device: Device = None,
        inputs: Spec = [],  # noqa: B006
        init: Init = [],  # noqa: B006
        require_kernels: Annotated[
            bool, Field(description="Refuse candidates that leave the computing to PyTorch.")
        ] = False,
    ) -> dict[str, Any]:
        """Compile, check and time candidate kernels against a reference, in sandboxed processes.

        Each verdict has a status (ok, rejected, compile_error, launch_error, mismatch, timeout, cheat, broken_task), what was wrong, and
        where it is ok the speedup over eager PyTorch with its 95 % interval.
        """
        if (source is None) == (not candidates):
            raise ToolError("give either candidates (files) or source (text)")
        with tempfile.TemporaryDirectory(prefix="dvk_mcp_") as folder:
            if source is not None:
                (file := Path(folder) / "candidate.py").write_bytes(source.encode(errors="replace"))
                candidates = [str(file)]
            flags = [
                "--tier",
                tier,
                *described(backend, device, inputs, init),
                *(["--require-kernels"] if require_kernels else []),
            ]
            rows = await command(["verify", *flags, "--", reference, *candidates], context)
        return {"all_ok": all(row["status"] == "ok" for row in rows), "verdicts": rows}


def add_optimize(server: MCPServer, library: Path | None) -> None:
    """`optimize`."""

    @server.tool()
    async def optimize(
        model: Annotated[
            str,
            Field(
                description="The file to make faster: model.py, or model.py:Name. It is not changed."
            ),
        ],
        context: Context,
        budget_s: Annotated[
            float,
            Field(
                gt=0, le=3600, description="Seconds of search; confirming the best comes on top."
            ),
        ] = 60.0,
        backend: Kind = "auto",
        device: Device = None,
        inputs: Spec = [],  # noqa: B006
        init: Init = [],  # noqa: B006
        also: Annotated[
            list[str],
            Field(description='Other inputs to be fast for, by what differs: "x=float32[1,1024]".'),
        ] = [],  # noqa: B006
        backbone: Annotated[
            str | None,
            Field(description="Language model that proposes, too: hf:PATH, endpoint:MODEL …"),
        ] = None,
    ) -> dict[str, Any]:
        """Search for the fastest kernels for a PyTorch module that survive verification, and leave a drop-in.

        `status` is faster, no_speedup, too_noisy, no_verdict or failed; `best` is the drop-in's path, `speedup` its confirmed
        speedup with the interval `speedup_lo` to `speedup_hi`, `run` the folder with report.html and every attempt.
        """
        flags = [
            "--budget-s",
            str(budget_s),
            *described(backend, device, inputs, init),
            *(f"--extra-input={one}" for one in also),
        ]
        flags += ["--backbone", backbone] if backbone else []
        flags += [] if library is None else ["--library", str(library)]
        result: dict[str, Any] = await command(["optimize", *flags, "--", model], context)
        return result


def add_skills(server: MCPServer, library: Path | None) -> None:
    """`skills_search` and `skills_show`."""

    @server.tool()
    def skills_search(
        query: Annotated[
            str, Field(description="A question, or any words, operators and identifiers.")
        ],
        limit: Annotated[int, Field(ge=1, le=50)] = 5,
    ) -> dict[str, Any]:
        """Find skills about writing fast kernels, best first; `skills_show` gives one whole."""
        try:
            with Library.open(library) as opened:
                hits = opened.ask(query, limit, snippets=False)
        except DvkError as error:
            raise ToolError(f"{error.message} ({error.hint})") from None
        result = [
            {"name": h.name, "description": h.description, "tags": list(h.tags), "score": h.score}
            for h in hits
        ]
        return {"skills": result}

    @server.tool()
    def skills_show(name: Annotated[str, Field(description="The skill's name.")]) -> str:
        """One skill: motivation, key idea, when it pays, example, pitfalls, as Markdown."""
        try:
            with Library.open(library) as opened:
                return markdown.render(opened.get(name))
        except DvkError as error:
            raise ToolError(f"{error.message} ({error.hint})") from None


async def command(arguments: Sequence[str], context: Context) -> Any:
    """A command's output for programs; its lines on stderr are reported as progress.

    Raises:
        ToolError: what the command says is wrong.
    """
    told = 0

    async def tell(line: str) -> None:
        nonlocal told
        told += 1
        await context.report_progress(told, message=line)

    try:
        return await run([*arguments[:1], "--json", *arguments[1:]], tell)
    except CommandFailed as error:
        raise ToolError(str(error)) from None


def described(
    backend: str, device: str | None, inputs: Sequence[str], init: Sequence[str]
) -> list[str]:
    """The options that both commands share."""
    given = [
        *(("--input", one) for one in inputs),
        *(("--init", one) for one in init),
        *([("--device", device)] if device else []),
    ]
    return ["--backend", backend, *(f"{name}={value}" for name, value in given)]
