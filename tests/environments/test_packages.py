"""Each adapter in the program of the package that it is for, with a real `dvk serve` as the judge. By hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dvk.interop.tables import rows
from dvk.pipelines.convert import PromptOptions, convert
from tests.environments.answers import RIGHT, TASK
from tests.environments.package_environments import TOP, python_of, run

pytestmark = [pytest.mark.hand, pytest.mark.slow, pytest.mark.timeout(1800)]
SETTINGS = """
[judge]
search_s = 0.05
num_seeds = 1
[rewards.weights]
correctness = 1.0
format = 0.2
"""
CHEAT = """
printf '{"reward": 99.0}' | tee /logs/verifier/reward.json > /logs/artifacts/reward.json
sed -i 's/[*] 3/* 2/' /app/task.py
echo 'print("99")' > /opt/dvk/score.py
"""
CODE = RIGHT.partition("```python\n")[2].removesuffix("```\n")


@contextmanager
def started(*command: str | Path, line: str, **variables: str) -> Iterator[str]:
    """A server; gives what the group of the expression `line` matches in its output."""
    env = {**os.environ, "PYTHONPATH": str(TOP), "PYTHONUNBUFFERED": "1", **variables}
    process = subprocess.Popen(
        [*command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=TOP
    )
    try:
        assert process.stdout is not None
        for said in process.stdout:
            if found := re.search(line, said):
                yield found[1]
                return
        raise AssertionError("it ended")
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a `dvk serve`, which every adapter of this file asks."""
    config = tmp_path_factory.mktemp("judge") / "settings.toml"
    config.write_text(SETTINGS)
    words = ["serve", "--port", "0", "--device", "cpu", "--workers", "1", "--config", config]
    with started(sys.executable, "-m", "dvk", *words, line=r"serving (\S+)") as url:
        yield url


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """One training task and one that is held out, for which three times is right."""
    for split, text in (("train", TASK), ("heldout", TASK.replace("* 2", "* 3"))):
        (tmp_path / "tasks" / split).mkdir(parents=True)
        (tmp_path / "tasks" / split / f"relu_{split}.py").write_text(text)
    return tmp_path / "tasks"


@pytest.mark.parametrize("kind", ["reward", "environment"])
def test_trl_trains_and_evaluates(judge: str, tmp_path: Path, kind: str) -> None:
    said = run("trl", "tests.environments.run_trl", kind, tmp_path, DVK_SCORE_URL=judge)
    history: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
    trained = next(one for one in history if "reward" in one)
    held = next(one for one in history if "eval_reward" in one)
    assert (trained["reward"], held["eval_reward"]) == (0.5, 0.5) and trained["grad_norm"] > 0
    if kind == "environment":
        assert (trained["tools/call_frequency"], trained["tools/failure_frequency"]) == (1, 0)


def test_verls_manager_takes_the_scores(judge: str) -> None:
    said = run("verl", "tests.environments.run_verl", DVK_SCORE_URL=judge)
    right, wrong, silent = json.loads(said.splitlines()[-1])
    assert [one["reward_score"] for one in (right, wrong, silent)] == [1.0, 0.0, -0.2]
    assert right["reward_extra_info"]["right"] == 1.0
    assert set(right["reward_extra_info"]) == set(silent["reward_extra_info"])


def test_verl_evaluates_by_split(judge: str, tasks: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as arrow
    from pyarrow import parquet

    file = tmp_path / "rows.parquet"
    convert(tasks, file, "prompts", options=PromptOptions(device="cpu"))
    table = [{**row, "responses": [RIGHT]} for row in rows(file)]
    parquet.write_table(arrow.Table.from_pylist(table), file)
    function = "+reward.custom_reward_function"
    words = [f"data.path={file}", f"{function}.path={TOP}/dvk/environments/verl.py"]
    words += [f"{function}.name=compute_score", f"{function}.reward_kwargs.details=false"]
    words += ["+ray_kwargs.ray_init.num_cpus=1", f"hydra.run.dir={tmp_path}/hydra"]
    said = run("verl", "verl.trainer.main_eval", *words, DVK_SCORE_URL=judge)
    assert re.search(r"'test_score/dvk_heldout': (np\.float64\()?0\.0\b", said)
    assert re.search(r"'test_score/dvk_train': (np\.float64\()?1\.0\b", said)


def test_verifiers_plays_turns(judge: str, tasks: Path, tmp_path: Path) -> None:
    scripted = "tests.environments.scripted_endpoint"
    with started(sys.executable, "-m", scripted, "0", line=r"^(\d+)$") as port:
        words = ["dvk-kernels", "--env.taskset.source", tasks, "--env.taskset.split", "train"]
        words += ["--env.turns", "2", "--env.agent.runtime.type", "subprocess", "-m", "scripted"]
        words += ["-n", "1", "--no-push", "--client.base-url", f"http://127.0.0.1:{port}/v1"]
        words += ["--client.api-key-var", "NONE", "-o", tmp_path / "out"]
        run("verifiers", "vf-eval", *words, DVK_SCORE_URL=judge, NONE="none")
    (file,) = (tmp_path / "out").rglob("traces.jsonl")
    (episode,) = map(json.loads, file.read_text().splitlines())
    (trace,) = episode["traces"]
    assert (
        trace["rewards"]["kernel"]["score"] == 1.0 and episode["task"]["data"]["split"] == "train"
    )
    assert (trace["metrics"]["right"], trace["metrics"]["turns"]) == (1.0, 2.0)


def test_openenvs_client_plays_episodes(judge: str, tasks: Path) -> None:
    server = [python_of("openenv"), "-m", "uvicorn", "dvk.environments.openenv:app", "--port", "0"]
    given = {"DVK_SCORE_URL": judge, "DVK_TASKS": str(tasks), "DVK_TURNS": "2"}
    with started(*server, line=r"running on (http://\S+)", **given) as url:
        found = json.loads(run("openenv", "tests.environments.run_openenv", url))
    assert found["splits"] == [
        {"name": "train", "type": "train"},
        {"name": "heldout", "type": "test"},
    ]
    first, wrong, right, state = found["episode"]
    assert (first["task"], first["split"], first["done"]) == ("relu_heldout", "heldout", False)
    assert (wrong["reward"], wrong["done"]) == (0.0, False) and "Wrong result" in wrong["text"]
    assert (right["reward"], right["done"], right["right"]) == (1.0, True, True)
    assert (state["step_count"], state["best_reward"]) == (2, 1.0)
    assert found["generic"] == 1.0 and found["post"]["reward"] == 1.0 and found["apart"]


def test_skyrl_gym_makes_the_environment(judge: str) -> None:
    found = json.loads(run("skyrl", "tests.environments.run_skyrl", DVK_SCORE_URL=judge))
    (wrong, right), metrics = found["steps"], found["metrics"]
    assert (wrong["reward"], wrong["done"]) == (0.0, False) and wrong["observations"]
    assert (right["reward"], right["done"], right["observations"]) == (1.0, True, [])
    assert metrics["heldout/right"] == 1.0 and metrics["heldout/turns"] == 2.0


@pytest.mark.skipif(os.geteuid() != 0, reason="the box without a container engine wants root")
def test_harbor_runs_a_tree_in_two_boxes(judge: str, tasks: Path, tmp_path: Path) -> None:
    """The policy's box has the files that its solution writes, the verifier's only the answer: other writes there change no reward."""
    convert(tasks, tmp_path / "trees", "harbor", options=PromptOptions(device="cpu"))
    for split, reward in (("train", 1.0), ("heldout", 0.0)):
        tree = tmp_path / "trees" / split / f"relu_{split}"
        (tree / "solution").mkdir()
        solve = f"cat > /app/answer.py <<'END'\n{CODE}END\ncheck; touch /app/left_here\n{CHEAT}"
        (tree / "solution" / "solve.sh").write_text(solve)
        script = tree / "tests" / "test.sh"
        script.write_text(script.read_text().replace("#!/bin/sh", "#!/bin/sh\nls /app", 1))
        box = "tests.environments.overlay_box:OverlayBox"
        words = ["run", "-p", tree.parent, "-a", "oracle", "-e", box, "-o", tmp_path / split, "-y"]
        run("harbor", "harbor", *words, DVK_SCORE_URL=judge, LITELLM_LOCAL_MODEL_COST_MAP="True")
        (file,) = (tmp_path / split).rglob("verifier/reward.json")
        assert json.loads(file.read_text())["reward"] == reward
        seen = (file.parent / "test-stdout.txt").read_text()
        assert "answer.py" in seen and "left_here" not in seen
        (log,) = (tmp_path / split).rglob("oracle.txt")
        assert ("Correct on" if reward else "Wrong result") in log.read_text()
