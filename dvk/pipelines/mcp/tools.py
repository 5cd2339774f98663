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
counts when the lower end of its interval is above 1. To work on one module for long, `workspace_open` makes a folder with the task, rules \
and skills; `workspace_check` and `workspace_bench` judge files in seconds and keep a log; `workspace_collect` confirms the best."""

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

Workspace = Annotated[str, Field(description="The folder of an opened workspace.")]
Written = Annotated[str, Field(description="The candidate: a file that defines ModelNew.")]
Idea = Annotated[str, Field(description="One line on the idea, for the log.")]


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
    add_workspace(server, library)
    add_trials(server)
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
                "--json",
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
            "--json",
            "--budget-s",
            str(budget_s),
            *described(backend, device, inputs, init),
            *(f"--extra-input={one}" for one in also),
        ]
        flags += ["--backbone", backbone] if backbone else []
        flags += [] if library is None else ["--library", str(library)]
        result: dict[str, Any] = await command(["optimize", *flags, "--", model], context)
        return result


def add_workspace(server: MCPServer, library: Path | None) -> None:
    """`workspace_open` and `workspace_collect`."""

    @server.tool()
    async def workspace_open(
        model: Annotated[
            str, Field(description="The file to make faster: model.py, or model.py:Name.")
        ],
        folder: Annotated[str, Field(description="A new or empty folder to work in.")],
        context: Context,
        backend: Kind = "auto",
        device: Device = None,
        inputs: Spec = [],  # noqa: B006
        init: Init = [],  # noqa: B006
        eval_mode: Annotated[bool, Field(description="Call .eval() on the module first.")] = False,
        resume: Annotated[
            bool, Field(description="Write the files of an opened workspace again.")
        ] = False,
    ) -> dict[str, Any]:
        """Make a folder to write faster kernels in: SKILL.md (read it first), the task, skills that fit. The judge stays outside of it."""
        flags = [
            *described(backend, device, inputs, init),
            *(["--eval"] if eval_mode else []),
            *(["--resume"] if resume else []),
            *([] if library is None else ["--library", str(library)]),
        ]
        result: dict[str, Any] = await command(
            ["workspace", "open", "--json", *flags, "--", model, folder], context
        )
        return result

    @server.tool()
    async def workspace_collect(
        folder: Workspace,
        context: Context,
        backbone: Annotated[
            str | None, Field(description="Language model that draws skills from the trials.")
        ] = None,
    ) -> dict[str, Any]:
        """Judge the best trials of a workspace again, by claim; takes minutes. `best` is the drop-in, `run` the folder with the report."""
        flags = ["--backbone", backbone] if backbone else []
        result: dict[str, Any] = await command(
            ["workspace", "collect", "--json", *flags, "--", folder], context
        )
        return result


def add_trials(server: MCPServer) -> None:
    """`workspace_check` and `workspace_bench`."""

    @server.tool()
    async def workspace_check(
        folder: Workspace, file: Written, context: Context, idea: Idea = ""
    ) -> dict[str, Any]:
        """Compile a candidate of a workspace and compare it with the reference, without timing it. `found` says what is wrong."""
        result: dict[str, Any] = await command(
            ["workspace", "check", "--json", "--", folder, file, idea], context
        )
        return result

    @server.tool()
    async def workspace_bench(
        folder: Workspace,
        file: Written,
        context: Context,
        idea: Idea = "",
        profile: Annotated[
            bool, Field(description="Say where the time of a call goes, too.")
        ] = False,
    ) -> dict[str, Any]:
        """Check and time a candidate of a workspace. `found` says how fast it is, `best` which trial is the fastest so far."""
        flags = ["--profile"] if profile else []
        result: dict[str, Any] = await command(
            ["workspace", "bench", "--json", *flags, "--", folder, file, idea], context
        )
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

    Args:
        arguments: of the command line, `--json` among them.

    Raises:
        ToolError: what the command says is wrong.
    """
    told = 0

    async def tell(line: str) -> None:
        nonlocal told
        told += 1
        await context.report_progress(told, message=line)

    try:
        return await run(arguments, tell)
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
