"""Models with a batch dimension."""

from __future__ import annotations

from dvk.records import Task, content_hash
from tests.tasks.hygiene_tasks import task as written


def task(source: str, name: str = "task") -> Task:
    return Task(id=content_hash(source), name=name, source=source, entry="Model", kind="module")


def attention(kind: str, width: int, special: str = "") -> Task:
    query = (
        f"torch.randn(2, 5, 3, {width}).transpose(1, 2)"
        if special == "turned"
        else f"torch.randn(2, 3, 5, {width})"
    )
    mask = ", x.new_zeros(5, 7)" if special == "masked" else ""
    return task(
        written(
            f"return F.scaled_dot_product_attention(x, y, y{mask}).relu()",
            parameters="x, y",
            inputs=f"{query}.to(torch.{kind}), torch.randn(2, 3, 7, {width}).to(torch.{kind})",
        )
    )
