"""What the agent reads: SKILL.md, TASK.md, and the scripts that ask the judge."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import dvk
from dvk.agents import task_context
from dvk.agents.dialects.examples import RULES, TITLES, worked
from dvk.agents.task_context import TASK_TOKENS, TaskContext
from dvk.pipelines.workspace.places import Opened
from dvk.records import Skill
from dvk.skills import markdown

LISTING = 200
"""Lines of the operator graph in TASK.md."""

SKILL = """\
---
name: faster-{slug}
description: Make the PyTorch code of this folder faster with {backend} kernels that a judge proves. Use it for all work in this folder.
---

# Make `{entry}` faster

Write a Python file that defines `ModelNew`: it computes what `{entry}` in `{file}` computes, in less time.

## Loop

1. Read `TASK.md`: shapes, types, the operator graph, the least time that memory traffic allows.
2. Read the files in `skills/` that fit. `example.py` is a whole candidate for another task.
3. Write a candidate, such as `new.py`.
4. `./check new.py` compiles it and compares it with the reference (seconds). Repair what it finds.
5. `./bench new.py "one line on the idea"` checks and times it. Exit code 0: right; 1: refused or wrong; 2: the call itself failed.
6. Read the answer, change one thing, and repeat from 3. `best.py` is the fastest right file so far, `log.jsonl` lists every trial.

`./bench --profile new.py` also says where the time goes. Calls wait for each other; the first one takes longer. A call that was cut off can
be repeated: a file that was judged is not judged again.

Stop when the time is near the least time of `TASK.md`, or when several different ideas in a row have gained nothing.

## Rules

- One file, which imports PyTorch{more} and the standard library. {rules}
- `ModelNew` takes the constructor arguments of `{entry}`, has parameters and buffers of the same names and shapes, and a `forward` with
  the same arguments and results: values, dtypes, shapes.
- It is checked on fresh inputs and weights of several kinds and shapes. Results kept from earlier calls, work left undone, lowered
  precision and calls of the reference's own computation are found out.{required}
- The judge runs outside of this folder, with its own copy of the task. Editing the task, the scripts, `log.jsonl` or `best.py` changes
  no verdict. At the end the best files are judged again, in fresh processes, and only a speedup that holds counts.
"""

REQUIRED = """
- Its own kernels must do the computing: PyTorch's operators are disabled in its process."""

POINTER = "Read SKILL.md first: it has the task, the loop and the rules of this folder.\n"

SCRIPT = """\
#!/bin/sh
# Sends a file to the judge, which is outside of this folder. Usage: ./{verb} FILE ["one line on the idea"]
DVK_HOME={home} exec {python} -I -c {code} workspace {verb} {folder} "$@"
"""

SKILLS = """\
# Skills that fit

{listed}
"""


def skill(subject: TaskContext, opened: Opened, file: str) -> str:
    """SKILL.md.

    Args:
        file: the task's file in the agent's folder.
    """
    return SKILL.format(
        slug=subject.task.name.replace(":", "-").replace("_", "-").lower(),
        entry=subject.task.entry,
        file=file,
        backend=TITLES.get(opened.backend, opened.backend),
        rules=RULES.get(opened.backend, ""),
        more=", Triton" if opened.backend == "triton" else "",
        required=REQUIRED if opened.require_kernels else "",
    )


def task(subject: TaskContext) -> str:
    """TASK.md: the reference with its inputs and results, the operator graph, the traffic."""
    lines = ["# The task", "", task_context.task(subject, TASK_TOKENS), ""]
    moved = task_context.traffic(subject)
    what = "inputs, weights and results" if subject.captured is not None else "inputs and results"
    lines += [
        "## Least traffic",
        "",
        f"A call moves at least {moved:,} bytes: {what}, once each. "
        "`bench` says how close a candidate comes to the time that this takes, where that was measured.",
        "",
    ]
    if subject.captured is not None:
        listing = subject.captured.graph.listing().splitlines()
        more = [f"… {len(listing) - LISTING} more"] if len(listing) > LISTING else []
        lines += ["## Operator graph", "", "```", *listing[:LISTING], *more, "```", ""]
    return "\n".join(lines)


def scripts(folder: Path, home: Path) -> dict[str, str]:
    """`check` and `bench`. They start Python isolated: files of the folder and the agent's environment do not change what it imports."""
    roots = [str(Path(dvk.__file__).resolve().parents[1])]
    roots += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p)]
    code = (
        f"import sys; sys.argv[0] = 'dvk'; sys.path += {list(dict.fromkeys(roots))!r}; "
        "from dvk.cli import main; main()"
    )
    said = {
        "home": shlex.quote(str(home.absolute())),
        "python": shlex.quote(sys.executable),
        "code": shlex.quote(code),
        "folder": shlex.quote(str(folder)),
    }
    return {verb: SCRIPT.format(verb=verb, **said) for verb in ("check", "bench")}


def folder_texts(
    subject: TaskContext, opened: Opened, file: str, skills: Sequence[Skill]
) -> dict[str, str]:
    """Everything that the agent reads, by name, except the files of the task and the scripts."""
    texts = {
        "SKILL.md": skill(subject, opened, file),
        "TASK.md": task(subject),
        "AGENTS.md": POINTER,
        "CLAUDE.md": POINTER,
        "skills/README.md": SKILLS.format(listed=task_context.headers(skills) or "None was found."),
        **{f"skills/{one.name}.md": markdown.render(one) for one in skills},
    }
    if opened.backend in TITLES:
        texts["example.py"] = worked(opened.backend)[0].candidate
    return texts
