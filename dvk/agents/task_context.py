"""Tasks and skills as text for prompts, within a budget whose cuts are marked. One source for data, training and use.

Budgets are in tokens, texts in characters: the text must not depend on the tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dvk import target
from dvk.agents import bounds
from dvk.composer import CannotCompose, CapturedGraph
from dvk.config import Config
from dvk.records import BackendName, Skill, Task, TensorSpec
from dvk.tasks.sizes import num_bytes, tensor_bytes

TASK_TOKENS = 6000
"""Tokens of the reference's source in a prompt; KernelBench's longest has about 4,000."""
SKILLS_TOKENS = 4500
"""Tokens of all given skills together: the three longest seeds fit whole."""
GRAPH_TOKENS = 1500
"""Tokens of the captured operators in a prompt: some 60 lines; of longer graphs the middle is left out."""
SUMMARY_TOKENS = 12000
"""Tokens of a trajectory in a summary's prompt: three answers of 3,000 tokens, task and skills."""
NEW_SKILL_TOKENS = 512
"""Requested length of a new skill's body; more than twice as much is rejected."""

CHARS_PER_TOKEN = 3
"""Byte-level BPEs with large vocabularies take 3 to 4 characters of code a token; the lower end keeps budgets."""
SEPARATOR = "\n\n---\n\n"
"""Between skills, everywhere."""


@dataclass(frozen=True)
class TaskContext:
    """The task as the agents see it."""

    task: Task
    captured: CapturedGraph | None
    """The operator graph; null if the module cannot be captured; the compact dialect needs it."""
    backend: BackendName
    cannot: CannotCompose | None = field(default=None, compare=False)
    """The reason why there is no graph, if known."""
    answers: tuple[str, ...] = field(default=(), compare=False)
    """Plans as text that the policy chooses from, where they are known: those that a table of measured plans holds."""
    bounds: bounds.Bounds | None = field(default=None, compare=False)
    """What bounds the task's time, for models that read prose."""


def cut(text: str, num_tokens: int) -> str:
    """`text` with its middle cut out and the gap marked if it exceeds the budget; two thirds of the rest come from the head."""
    most = max(0, num_tokens) * CHARS_PER_TOKEN
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    return f"{text[:head]}\n[… {len(text) - most:,} characters left out …]\n{text[len(text) - tail :] if tail else ''}"


def headers(skills: Sequence[Skill], evidence: Sequence[str] = ()) -> str:
    """A numbered list for choosing from: name, scope, tags, description, condition with change, evidence if given; no bodies."""
    rows = []
    for number, skill in enumerate(skills, 1):
        tags = f"[scope={skill.scope}] [tags: {', '.join(skill.tags)}]"
        rows += [f"{number}. **{skill.name}** {tags}", f"   {_one_line(skill.description)}"]
        if skill.do is not None and evidence:
            rows.append(f"   when {skill.when}: {skill.do}")
        if evidence and evidence[number - 1]:
            rows.append(f"   measured: {evidence[number - 1]}")
    return "\n".join(rows)


def full_text(skill: Skill) -> str:
    """Front matter and body of a library entry."""
    front = f"name: {skill.name}\ndescription: {_one_line(skill.description)}\nscope: {skill.scope}\ntags: [{', '.join(skill.tags)}]"
    return f"---\n{front}\n---\n\n{skill.body.strip()}"


def skill_texts(skills: Sequence[Skill], num_tokens: int) -> str:
    """All of `skills` in full; if they exceed the budget together, each is cut to its share."""
    texts = [full_text(skill) for skill in skills]
    return SEPARATOR.join(fit(texts, num_tokens))


def fit(texts: Sequence[str], num_tokens: int) -> list[str]:
    """Cut the longest of `texts` until all together fit: short ones stay whole, their unused share goes to the others."""
    left, shares = num_tokens * CHARS_PER_TOKEN, [0] * len(texts)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for rank, i in enumerate(order):
        shares[i] = min(len(texts[i]), left // (len(texts) - rank))
        left -= shares[i]
    return [
        text if share >= len(text) else cut(text, share // CHARS_PER_TOKEN)
        for text, share in zip(texts, shares)
    ]


def task(subject: TaskContext, num_tokens: int) -> str:
    """The reference's source, and the requirements on a candidate: shapes, dtypes, layouts, other shapes, precision."""
    given = subject.task
    lines = [
        f"Reference: `{given.entry}`, a {'module' if given.kind == 'module' else 'function'}; device {given.device}."
    ]
    if given.inputs:
        lines.append("Inputs: " + "; ".join(map(tensor, given.inputs)) + ".")
    if given.outputs:
        lines.append("Outputs: " + "; ".join(map(tensor, given.outputs)) + ".")
    if given.shape_variants:
        lines.append(
            "It is also checked with other shapes: "
            + ", ".join(v.name for v in given.shape_variants)
            + "."
        )
    lines.append(
        f"Precision class: {given.precision}. Mode: {'eval' if given.eval_mode else 'as constructed (train)'}."
    )
    return "\n".join([*lines, "", "```python", cut(given.source.strip(), num_tokens), "```"])


def bounded(subject: TaskContext, config: Config) -> TaskContext:
    """The task with its bounds by shapes and peaks, unless better ones are known."""
    if subject.bounds is not None:
        return subject
    graph = subject.captured.graph if subject.captured is not None else None
    device = target.of_judge(config, subject.task.device)
    return replace(subject, bounds=bounds.of(subject.task, graph, config, device))


def operators(subject: TaskContext, num_tokens: int) -> str:
    """The captured graph, an operator a line, weights with their names; empty without a graph."""
    if subject.captured is None:
        return ""
    graph = subject.captured.graph
    lines = graph.listing().splitlines()
    for number, node in enumerate(graph.nodes):
        if node.target and node.op in ("param", "buffer"):
            lines[number] += f"  # {node.target}"
    return cut("\n".join(lines), num_tokens)


def traffic(subject: TaskContext) -> int:
    """Bytes of the task's inputs, weights and results, once each: the minimum that a call moves. Without a graph, weights are not known."""
    nodes = subject.captured.graph.nodes if subject.captured is not None else ()
    weights = [node for node in nodes if node.op in ("param", "buffer")]
    return num_bytes(subject.task) + tensor_bytes(
        (n.dtype, n.shape) for n in weights if n.dtype is not None and n.shape is not None
    )


def tensor(spec: TensorSpec) -> str:
    """`x float32[64, 1024]`, and its strides if they are not those of a contiguous tensor."""
    dense, step = [], 1
    for size in reversed(spec.shape):
        dense.append(step)
        step *= max(size, 1)
    text = f"{spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]"
    return (
        text if tuple(reversed(dense)) == spec.strides else f"{text} strides {list(spec.strides)}"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
