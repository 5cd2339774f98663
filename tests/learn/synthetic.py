"""Examples like a teacher's, in any number: real kernels and modules of this repository, permuted.

The honest kernels that the judge is tested on and the shipped tasks give the text; operators are exchanged, names and sizes
changed, schedules varied and comments added, from a seed. A row's speedup, skills and roles follow the same seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dvk.learn.examples import Example, ExampleTask
from dvk.records import content_hash
from dvk.resources import resource

POINTWISE = (
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "exp",
    "abs",
    "sqrt",
    "sin",
    "cos",
    "erf",
    "log1p",
    "square",
    "neg",
    "softplus",
    "mish",
)
REDUCING = ("softmax", "layer_norm", "rms_norm", "sum", "mean", "amax", "logsumexp")
HEADS = ("", "linear", "conv2d", "matmul")
SKILLS = tuple(f"skill_{number}" for number in range(24))
_OWN = re.compile(r"\b(x_ptr|y_ptr|out_ptr|x|y|n|out|rows|columns|offsets|mask|acc|row)\b")


@cache
def bodies() -> tuple[str, ...]:
    """Texts of real kernels, 0.6 to 2.4 kB each."""
    texts = [path.read_text() for path in sorted(resource("kernels", "honest").glob("*.py"))]
    return tuple(text for text in texts if 600 <= len(text) <= 2400)


@cache
def modules() -> tuple[tuple[str, str], ...]:
    """(name, source) of the shipped tasks."""
    found = sorted(Path(resource("data", "tasks")).glob("*/*.py"))
    return tuple((path.stem, path.read_text()) for path in found)


def examples(count: int, seed: int = 0, skew: float = 1.0) -> Iterator[Example]:
    """`count` examples.

    Args:
        skew: how unevenly bodies, operators and skills are drawn: 0 is uniform.
    """
    draw = random.Random(seed)
    for number in range(count):
        kind = draw.choices(
            ("policy", "policy_with_skills", "selection", "summary"), (70, 20, 7, 3)
        )[0]
        yield (policy if kind.startswith("policy") else role)(draw, kind, skew, number)


def pick(draw: random.Random, values: Any, skew: float) -> Any:
    """A value, earlier ones more often."""
    return draw.choices(values, [(rank + 1) ** -skew for rank in range(len(values))])[0]


def policy(draw: random.Random, kind: str, skew: float, number: int) -> Example:
    """One answer to one task, in Triton's or C++'s clothes."""
    chain = tuple(draw.choices(POINTWISE, k=draw.randint(0, 4)))
    head, tail = pick(draw, HEADS, skew), draw.choice(("", *REDUCING))
    signature = tuple(name for name in (head, *chain, tail) if name) or ("relu",)
    rows, columns = 2 ** draw.randint(6, 14), 2 ** draw.randint(5, 13)
    listing = f"s0={rows} s1={columns}\nx0: f32[s0,s1] = input\n" + "\n".join(
        f"v{i}: f32[s0,s1] = {op}(v{i - 1})" for i, op in enumerate(signature)
    )
    skills = (
        tuple(sorted({pick(draw, SKILLS, skew) for _ in range(draw.randint(1, 3))}))
        if kind == "policy_with_skills"
        else ()
    )
    code = kernel(draw, signature, skew)
    speedup = round(draw.lognormvariate(0.3, 0.4), 3)
    return Example.new(
        kind=kind,
        messages=(
            {"role": "user", "content": "\n".join([*skills, listing])},
            {"role": "assistant", "content": code},
        ),
        task=ExampleTask(
            id=content_hash(listing),
            name=f"chain{number}",
            level="single" if len(signature) == 1 else "fusion",
        ),
        signature=signature,
        listing=listing,
        backend="triton",
        skills=skills,
        code=code,
        speedup=speedup,
        lo=round(speedup * 0.97, 3),
        origin="composer",
        verified=draw.random() < 0.97,
    )


def kernel(draw: random.Random, signature: tuple[str, ...], skew: float) -> str:
    """A permuted real kernel with the chain written into it."""
    text = pick(draw, bodies(), skew)
    if draw.random() < 0.5:
        names = {name: f"{name}{draw.randint(0, 99)}" for name in set(_OWN.findall(text))}
        text = _OWN.sub(lambda match: names[match.group(1)], text)
    text = re.sub(r"\b(?:128|256|512|1024|2048)\b", lambda _: str(2 ** draw.randint(7, 12)), text)
    lines = text.splitlines()
    steps = [
        f"    v{i} = tl.{op}(v{i - 1}, {draw.choice(('x', '0.5', 'scale'))})"
        for i, op in enumerate(signature)
    ]
    at = draw.randint(len(lines) // 2, len(lines))
    return (
        "\n".join(
            [
                *lines[:at],
                "@triton.jit",
                f"def fused_{draw.randint(0, 9)}(v0, scale):",
                *steps,
                *lines[at:],
            ]
        )
        + "\n"
    )


def role(draw: random.Random, kind: str, skew: float, number: int) -> Example:
    """A selection or a summary about a shipped task."""
    name, source = pick(draw, modules(), skew)
    if kind == "selection":
        shown = tuple(draw.sample(SKILLS, 10))
        chosen = tuple(sorted({pick(draw, shown, skew) for _ in range(draw.randint(1, 3))}))
        tool, arguments = (
            "select_skills",
            {"selected_skills": [{"name": one, "reason": f"{one} pays here"} for one in chosen]},
        )
    else:
        shown, chosen = (), (f"new_skill_{draw.randint(0, 5000)}",)
        tool, arguments = (
            "update_skill_library",
            {
                "new_skills": [
                    {"name": chosen[0], "content": f"## Motivation\n{draw.choice(bodies())[:600]}"}
                ]
            },
        )
    call = {"id": "call_0", "type": "function", "function": {"name": tool, "arguments": arguments}}
    prompt = re.sub(r"\d{2,}", lambda _: str(draw.randint(16, 4096)), source) + "\n".join(shown)
    return Example.new(
        kind=kind,
        messages=(
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ),
        task=ExampleTask(id=content_hash(source), name=name, source=source),
        signature=(),
        skills=shown,
        chosen=chosen,
        speedup=round(draw.uniform(1.0, 3.0), 2),
        origin="composer",
        verified=True,
    )
