"""Harbor's task trees, which TRL's HarborSpec reads, too: a folder a task, below `train` and `heldout`.

    NAME/instruction.md            the question
    NAME/task.toml                 limits; the split is in its metadata and keywords
    NAME/environment/Dockerfile    the policy's box: Python, the task, `check`; no torch, no clock
    NAME/tests/test.sh             runs in a box that the policy never touched, and writes the reward

Both boxes ask a `dvk serve` over HTTP, at $DVK_SCORE_URL of the machine where Harbor runs. `check` there gives the policy the findings
on its file while it works.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dvk.interop.problem_sets import Problem

IMAGE = "python:3.12-slim"
ANSWER = "/app/answer.py"
AGENT_S = 3600
VERIFIER_S = 1200
"""More than one answer of the judge may take: see score.py."""

_TOML = """\
schema_version = "1.3"
artifacts = ["{answer}"]

[task]
name = "dvk/{name}"
description = "Make a PyTorch module faster with own kernels."
keywords = ["pytorch", "kernels", "{split}"]

[metadata]
split = "{split}"

[agent]
timeout_sec = {agent_s}

[verifier]
timeout_sec = {verifier_s}
environment_mode = "separate"

[verifier.env]
DVK_SCORE_URL = "${{DVK_SCORE_URL}}"
DVK_JUDGE_TOKEN = "${{DVK_JUDGE_TOKEN:-}}"

[environment]
cpus = 1
memory_mb = 2048

[environment.env]
DVK_SCORE_URL = "${{DVK_SCORE_URL}}"
DVK_JUDGE_TOKEN = "${{DVK_JUDGE_TOKEN:-}}"
"""
_DOCKERFILE = f"""\
FROM {IMAGE}
WORKDIR /app
COPY task.py /app/task.py
COPY score.py /opt/dvk/score.py
RUN printf '#!/bin/sh\\nexec python3 /opt/dvk/score.py /app/task.py {ANSWER}\\n' > /usr/local/bin/check \\
    && chmod +x /usr/local/bin/check
"""
_TEST = f"""\
#!/bin/sh
exec python3 /tests/score.py /tests/task.py {ANSWER} /logs/verifier
"""
_WHERE = f"""

The reference is `/app/task.py`. Write the whole file to `{ANSWER}`, without a fence. `check` says whether it is right and how fast it
is, measured on another machine; the file that is there at the end counts.
"""


def write(folder: Path, problems: Iterable[Problem]) -> int:
    """Write a tree a problem; returns how many."""
    score = Path(__file__).with_name("score.py").read_text(encoding="utf-8")
    number = 0
    for problem in problems:
        files = {
            "instruction.md": problem.prompt.rstrip() + _WHERE,
            "task.toml": _TOML.format(
                answer=ANSWER,
                name=problem.name,
                split=problem.split,
                agent_s=AGENT_S,
                verifier_s=VERIFIER_S,
            ),
            "environment/Dockerfile": _DOCKERFILE,
            "environment/task.py": problem.task,
            "environment/score.py": score,
            "tests/test.sh": _TEST,
            "tests/task.py": problem.task,
            "tests/score.py": score,
        }
        for name, text in files.items():
            path = folder / problem.split / problem.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if path.suffix == ".sh" else 0o644)
        number += 1
    return number


__all__ = ["write"]
