"""`dvk mcp` as a process, driven by the official SDK's client over stdio."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dvk.errors import MachineError, UsageError
from dvk.pipelines.mcp import serve
from dvk.pipelines.workspace import asking
from dvk.sandbox.proctree import descendants
from tests.cli import warm
from tests.pipelines import workspaces
from tests.python_path import python_path

if TYPE_CHECKING:
    from mcp import Client

FILES = Path(__file__).resolve().parents[1] / "harness" / "files"


def drive(root: Path, story: Callable[[Client], Awaitable[Any]]) -> Any:
    """Result of `story` with a server that works in `root`."""
    from mcp import (
        Client,
        StdioServerParameters,
    )  # as slow as torch to import, and every process collects this file

    env = {**os.environ, "PYTHONPATH": python_path()}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "dvk", "mcp", "--root", str(root)], env=env, cwd="/"
    )

    async def talk() -> Any:
        with anyio.fail_after(200):
            async with Client(server) as client:
                return await story(client)

    return anyio.run(talk)


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


@pytest.mark.slow
def test_tools_are_described_and_the_library_is_searched(tmp_path):
    async def story(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(listed) == {"verify", "optimize", "skills_search", "skills_show"} | {
            f"workspace_{verb}" for verb in ("open", "check", "bench", "collect")
        }
        for tool in listed.values():
            assert tool.description
            assert all(
                "description" in one
                for name, one in tool.input_schema["properties"].items()
                if name != "limit"
            ), tool.name
        assert listed["verify"].input_schema["required"] == ["reference"]
        found = await client.call_tool(
            "skills_search", {"query": "softmax over long rows", "limit": 3}
        )
        names = [skill["name"] for skill in found.structured_content["skills"]]
        assert not found.is_error and len(names) == 3 and any("softmax" in name for name in names)
        shown = await client.call_tool("skills_show", {"name": names[0]})
        assert names[0] in text(shown) and "## " in text(shown)
        missing = await client.call_tool("skills_show", {"name": "no_such_skill"})
        assert missing.is_error and "no_such_skill" in text(missing)
        assert (await client.call_tool("skills_search", {"query": "x", "limit": 0})).is_error

    drive(tmp_path, story)


@pytest.mark.slow
def test_what_the_command_refuses_is_said(tmp_path):
    async def story(client: Client) -> None:
        wrong = await client.call_tool(
            "verify", {"reference": "--selftest", "source": "no program"}
        )
        assert wrong.is_error and "--selftest" in text(wrong) and "hint:" in text(wrong), (
            "a name is no option"
        )
        assert (await client.call_tool("verify", {"reference": "affine.py"})).is_error

    drive(tmp_path, story)


@pytest.mark.slow
def test_verify_by_file_and_by_text(tmp_path):
    shutil.copy(FILES / "affine.py", tmp_path)
    told: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def story(client: Client) -> None:
        both = {
            "candidates": [str(FILES / "bad/one_element.py"), str(FILES / "good/torch_affine.py")],
            "tier": "smoke",
            "device": "cpu",
        }
        done = await client.call_tool(
            "verify", {"reference": "affine.py", **both}, progress_callback=heard
        )
        assert [row["status"] for row in done.structured_content["verdicts"]] == ["mismatch", "ok"]
        assert not done.structured_content["all_ok"] and not done.is_error
        source = (FILES / "good/torch_affine.py").read_text()
        done = await client.call_tool(
            "verify",
            {"reference": "affine.py", "source": source, "tier": "smoke", "require_kernels": True},
        )
        assert done.structured_content["verdicts"][0]["status"] == "rejected", (
            "it leaves the work to PyTorch"
        )

    drive(tmp_path, story)
    assert any("mismatch" in line for line in told) and list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_optimize_leaves_a_drop_in_and_a_cancelled_one_leaves_no_process(tmp_path):
    shutil.copy(warm.ROOT / "data/tasks/examples/layernorm_gelu_residual.py", tmp_path / "mine.py")

    async def story(client: Client) -> None:
        found = (
            await client.call_tool("optimize", {"model": "mine.py", "budget_s": 5})
        ).structured_content
        assert (
            found["status"] in ("faster", "no_speedup", "too_noisy") and found["num_candidates"] > 0
        )
        assert (tmp_path / found["run"] / "report.html").is_file()
        server = [
            pid
            for pid in descendants(os.getpid())
            if b"mcp" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ][0]
        with anyio.move_on_after(6) as scope:
            await client.call_tool("optimize", {"model": "mine.py", "budget_s": 600})
        assert scope.cancelled_caught
        until = time.monotonic() + 30
        while descendants(server):
            assert time.monotonic() < until, "the search goes on"
            await anyio.sleep(0.1)
        assert (await client.call_tool("skills_search", {"query": "gelu"})).structured_content[
            "skills"
        ], "and the server serves on"

    drive(tmp_path, story)


@pytest.mark.hand
@pytest.mark.slow
def test_a_workspace_by_tools_whose_long_calls_keep_no_other_waiting(tmp_path):
    (tmp_path / "model.py").write_text(workspaces.MODEL)
    (tmp_path / "pausing.py").write_text(workspaces.PAUSING)
    (tmp_path / "new.py").write_text(workspaces.RIGHT)
    (tmp_path / "cut.py").write_text(workspaces.RIGHT + "# cut\n")
    heard: list[str] = []
    ended: list[str] = []

    async def progress(number: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async def story(client: Client) -> None:
        given = {"model": "model.py", "folder": "agent", "device": "cpu"}
        made = (await client.call_tool("workspace_open", given)).structured_content
        assert (tmp_path / "agent/SKILL.md").is_file() and made["trials"] == 0
        early = await client.call_tool("workspace_collect", {"folder": "agent"})
        assert early.is_error and "no trials" in text(early) and "hint:" in text(early)

        async def bench() -> None:
            words = {"folder": "agent", "file": "new.py", "idea": "no pause"}
            done = await client.call_tool("workspace_bench", words, progress_callback=progress)
            found = done.structured_content
            assert found["status"] == "ok" and found["speedup_lo"] > 2 and found["trial"] == 1
            ended.append("bench")

        async with anyio.create_task_group() as group:
            group.start_soon(bench)
            while "judging it" not in heard:
                await anyio.sleep(0.05)
            assert (await client.call_tool("skills_search", {"query": "gelu"})).structured_content
            ended.append("search")
        assert ended == ["search", "bench"] and "starting the judge" in heard

        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("workspace_bench", {"folder": "agent", "file": "cut.py"})
        assert scope.cancelled_caught
        words = {"folder": "agent", "file": "new.py"}
        done = (await client.call_tool("workspace_check", words)).structured_content
        assert done["status"] == "ok" and done["asked"] == "check", "and the judge serves on"

    try:
        drive(tmp_path, story)
    finally:
        asking.end(workspaces.place(tmp_path / "agent"))


def test_no_such_folder_and_no_sdk(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no such folder"):
        serve(tmp_path / "nowhere", None)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "dvk.pipelines.mcp.tools", raising=False)
    with pytest.raises(MachineError, match="pip install 'dvk\\[mcp\\]'"):
        serve(tmp_path, None)
