"""`dvk workspace`: an agent that knows nothing but its folder, the judge outside of it, and what is collected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dvk.config import Config
from dvk.errors import UsageError
from dvk.learn import examples
from dvk.pipelines.export import proven
from dvk.pipelines.sft.stages import SftRequest, sft
from dvk.pipelines.workspace import asking, copies
from dvk.pipelines.workspace.places import place_of
from dvk.records import Episode
from dvk.skills import markdown
from tests.cli import warm
from tests.pipelines import scripted_agent, workspaces
from tests.pipelines.workspaces import RIGHT, answer, dvk

BODY = "## Motivation\\n\\nWaits.\\n\\n## Key Idea\\n\\nDo not wait.\\n\\n## Example\\n\\n`pass`\\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = workspaces.opened(tmp_path_factory.mktemp("workspace"))
    yield made
    asking.end(workspaces.place(made))


@pytest.mark.slow
def test_a_scripted_agent_works_with_the_folder_alone_and_its_trials_are_collected(
    folder: Path, tmp_path: Path
) -> None:
    told = agent_in(folder)
    assert told["wrong"]["code"] == 1 and told["repaired"]["code"] == 0
    assert [told[name]["code"] for name in ("slow", "kernel", "fused")] == [0, 0, 0]
    assert "faster than PyTorch" in told["kernel"]["said"] and "(best.py)" in told["kernel"]["said"]
    assert told["none"]["code"] == 2 and "missing.py" in told["none"]["errors"]
    assert [row["status"] for row in told["log"]] == ["mismatch", "ok", "ok", "ok", "ok"]
    assert [row["asked"] for row in told["log"]] == ["check", "check", "bench", "bench", "bench"]
    assert told["log"][3]["what"] == "one loop in C++"
    assert {"reference_ms", "tolerance"}.isdisjoint(told["log"][3])
    fastest = max(told["log"], key=lambda row: row["speedup"] or 0)
    assert (
        told["best"]
        == (folder / f"{'fused' if fastest['trial'] == 5 else 'kernel'}.py").read_text()
    )

    draft = {
        "name": "no_waiting",
        "description": "Leave out waits.",
        "tags": ["wait"],
        "content": BODY.replace("\\n", "\n"),
    }
    script = tmp_path / "script.jsonl"
    call = {
        "name": "update_skill_library",
        "arguments": json.dumps({"think": "", "new_skills": [draft]}),
    }
    line = {"answer": "", "tool_calls": [{"id": "1", "type": "function", "function": call}]}
    script.write_text(json.dumps(line) + "\n")
    run = tmp_path / "run"
    words = ("collect", folder, "--json", "--out", run, "--backbone", f"scripted:{script}")
    killed_once_begun(words, run)
    summary = json.loads(dvk(*words, "--resume", cwd=tmp_path).stdout)
    assert summary["status"] == "faster" and summary["speedup_lo"] > 2
    assert (run / "best.py").read_text() in (
        scripted_agent.FUSED,
        scripted_agent.KERNEL.replace("ADD", "1"),
    )
    assert "one loop in C++" in (run / "report.html").read_text()
    episode = Episode.model_validate_json((run / "episodes/optimize.jsonl").read_text())
    tiers = [turn.verdict.tier for turn in episode.traces[0].turns if turn.verdict]
    assert tiers[:5] == ["smoke", "smoke", "search", "search", "search"] and "claim" in tiers[5:]
    assert [skill.name for skill in episode.proposed_skills] == ["no_waiting"]
    assert {trace.role for trace in episode.traces} == {"policy", "summary"}
    assert markdown.read(run / "skills/no_waiting.md").description == "Leave out waits."
    assert proven.read(run).verdict.faster
    check_examples(run, tmp_path)

    again = dvk(*words, "--resume", cwd=tmp_path)
    assert json.loads(again.stdout) == summary, "a finished run is answered from its folder"


def killed_once_begun(words: Sequence[object], run: Path) -> None:
    """A collecting process is killed when it has the trials."""
    command = [sys.executable, "-m", "dvk", "workspace", *map(str, words)]
    began = subprocess.Popen(command, cwd=warm.ROOT, stderr=subprocess.DEVNULL)
    turns = run / "turns.jsonl"
    wait_for(lambda: turns.is_file() and turns.read_bytes().count(b"\n") == 5)
    began.kill()
    began.wait()


def agent_in(folder: Path) -> dict[str, Any]:
    """What the scripted agent saw."""
    done = subprocess.run(
        [sys.executable, scripted_agent.__file__],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_examples(run: Path, tmp_path: Path) -> None:
    """Examples are conversations that end in a faster file, and `dvk sft` takes them."""
    made = list(examples.read(run / "examples.jsonl"))
    speeds = [one.speedup or 0 for one in made]
    assert speeds == sorted(speeds) and len(made) >= 2
    assert all(one.verified and one.code in str(one.messages[-1]["content"]) for one in made)
    assert "Wrong result" in str(made[0].messages), "the repair is part of it"
    assert [one.parent for one in made] == [None, *(one.id for one in made[:-1])]
    request = SftRequest(
        stages=("collect", "filter"),
        data=(run / "examples.jsonl",),
        out=tmp_path / "sft",
        workers=1,
    )
    sft(request, Config())
    kept = list(examples.read(tmp_path / "sft/filter/kept.jsonl"))
    assert [one.code for one in kept] == [scripted_agent.KERNEL.replace("ADD", "1")], (
        "no other has kernels"
    )


@pytest.mark.slow
def test_calls_wait_for_each_other_and_survive_kills_of_the_judge_and_of_a_call(
    folder: Path,
) -> None:
    before = len(workspaces.place(folder).turns)
    texts = {f"side_{n}.py": RIGHT + f"# {n}\n" for n in range(3)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    found: dict[str, dict[str, Any]] = {}
    threads = [
        threading.Thread(
            target=lambda name=name: found.update({name: answer(folder, "bench", name)})
        )  # type: ignore[misc]
        for name in texts
    ]
    for thread in threads:
        thread.start()
    # Every call starts one; all but the first end at once.
    wait_for(lambda: len(workspaces.judges(folder)) == 1)
    judge = workspaces.judges(folder)[0]
    os.kill(judge, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert {one["status"] for one in found.values()} == {"ok"}
    assert workspaces.judges(folder) not in ([], [judge])
    rows = workspaces.place(folder).turns[before:]
    assert sorted(turn.candidate.source for turn in rows if turn.candidate) == sorted(
        texts.values()
    )

    (folder / "cut.py").write_text(RIGHT + "# cut\n")
    call = subprocess.Popen(["./bench", "cut.py"], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert call.stderr is not None
    wait_for(lambda: "judging" in (call.stderr.readline() if call.stderr else ""))
    call.kill()
    call.wait()
    call.stderr.close()
    wait_for(lambda: len(workspaces.place(folder).turns) == before + 4)
    assert answer(folder, "bench", "cut.py")["cached"], "it is not judged again"


def wait_for(happened: Any, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_an_opened_folder_is_written_again_and_a_task_that_reads_other_files_is_refused(
    folder: Path,
) -> None:
    root = folder.parent
    options = ("--device", "cpu", *workspaces.SETS)
    used = dvk("mine/model.py", "agent", *options, cwd=root, exits=2)
    assert "--resume" in used.stderr
    (folder / "SKILL.md").unlink()
    (folder / "check").unlink()
    dvk("mine/model.py", "agent", *options, "--resume", cwd=root)
    assert (folder / "SKILL.md").is_file() and os.access(folder / "check", os.X_OK)
    other = dvk("mine/model.py", "agent", *options, "--eval", "--resume", cwd=root, exits=2)
    assert "another eval_mode" in other.stderr

    (root / "mine/gain.txt").write_text("2")
    gain = "open(__file__.replace('reading.py', 'gain.txt')).read()"
    (root / "mine/reading.py").write_text(workspaces.MODEL.replace("* 2", f"* float({gain})"))
    refused = dvk("mine/reading.py", "reader", *options, cwd=root, exits=2)
    assert "cannot be judged from a copy" in refused.stderr and not (root / "reader").exists()


@pytest.mark.slow
def test_bad_input_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "link").symlink_to("full")
    (tmp_path / "model.py").write_text("class Model: pass")
    for words, said in (
        (("model.py", "full"), "not empty"),
        (("model.py", "model.py"), "is a file"),
        (("model.py", "link"), "is a link"),
        (("model.py", "new", "--device", "tpu"), "unknown device"),
        (("model.py", "new", "--baseline", "fast"), "unknown baseline"),
        (("model.py", "new", "--device", "cpu", "--backend", "triton"), "checked and not timed"),
        (("model.py", "new", "--set", "remote.judge=kernelgym:http://x"), "judged on this machine"),
        (("none.py", "new"), "no such file"),
        (("check", "full", "model.py"), "no workspace"),
        (("bench", "nowhere", "model.py"), "no workspace"),
        (("collect", "nowhere"), "no workspace"),
        (("model.py",), "Missing argument"),
    ):
        done = dvk(*words, cwd=tmp_path, exits=2)
        assert said in done.stderr and not done.stdout, words
        assert not (tmp_path / "new").exists()


def test_copies_replace_links_and_follow_none(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "log").write_text("kept")
    (folder / "log").symlink_to(outside / "log")
    (folder / "task").symlink_to(outside)
    copies.write(folder, "log", "new")
    assert (outside / "log").read_text() == "kept" and (folder / "log").read_text() == "new"
    with pytest.raises(OSError):
        copies.write(folder, "task/model.py", "text")
    (folder / "taken").mkdir()
    with pytest.raises(OSError):
        copies.write(folder, "taken", "text")
    (tmp_path / "linked").symlink_to(folder)
    with pytest.raises(OSError):
        copies.write(tmp_path / "linked", "log", "text")
    assert [one.name for one in outside.iterdir()] == ["log"]
    assert {one.name for one in folder.iterdir()} == {"log", "task", "taken"}, (
        "nothing is left over"
    )


def test_a_folder_has_one_place_however_it_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "agent").mkdir()
    monkeypatch.chdir(tmp_path / "agent")
    assert place_of(Path(".")) == place_of(tmp_path / "agent") == place_of(Path("../agent/"))
    assert place_of(tmp_path / "other") != place_of(tmp_path / "agent")
    (tmp_path / "link").symlink_to("agent")
    with pytest.raises(UsageError, match="is a link"):
        place_of(tmp_path / "link")
