"""Memory of kernels' results: fresh, or that of a value which nothing reads any more.

On a CPU fresh memory costs more than the line that asks for it: the C library hands large blocks back to the system, and each page of the
next one is cleared at its first use. A GPU's allocator keeps its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dvk import aten
from dvk.composer.dropin.results import Layout
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.loops import Buffer
from dvk.composer.ir.nodes import IRNode


@dataclass
class DeadMemory:
    """The tensors of a program that may be written again.

    Args:
        lines: those of the program; the `del` of a tensor that is taken is removed, and leaves an empty line if it was alone.
    """

    lines: list[str]
    made: dict[str, Layout | None] = field(default_factory=dict)
    """Names of tensors that the program allocates for kernels; None: something else may hold the memory."""
    _dead: dict[str, int] = field(default_factory=dict)
    """Names of those that are dead → index of the line that deletes them."""

    def drop(self, names: Iterable[str]) -> None:
        """Delete `names`, unless they are taken later."""
        names = list(names)
        free = [name for name in names if self.made.get(name) is not None]
        self._dead |= dict.fromkeys(free, len(self.lines))
        self.lines.append(f"del {', '.join(names)}")

    def take(self, layout: Layout) -> str | None:
        """The name of the dead tensor of the layout that died last, which is the caller's from now on."""
        for name, line in reversed(self._dead.items()):
            if repr(self.made[name]) == repr(layout):  # sizes by their formulas
                del self._dead[name]
                left = [n for n in self.lines[line].removeprefix("del ").split(", ") if n != name]
                self.lines[line] = f"del {', '.join(left)}" if left else ""
                return name
        return None


def may_hold(user: IRNode) -> bool:
    """Whether an operator's result may share memory with its operands, or keep them: any but kernels and a library's products."""
    return user.kind == "extern" and user.op.removeprefix("aten.").split(".")[0] not in aten.LIBRARY


def empty(shape: Sequence[int], strides: Sequence[int], dtype: str) -> str:
    """The expression of fresh memory (`runtime.memory`)."""
    return f"dvk_allocate({tuple(shape)!r}, {tuple(strides)!r}, torch.{dtype})"


def allocation(buffer: Buffer, read: Sequence[tuple[str, Buffer]], device: str) -> str:
    """The expression of memory for an output: fresh, or zeros to which a kernel adds.

    Args:
        read: names of the tensors that the kernel reads, and what they are.
    """
    if buffer.prim.op != "scatter":
        return empty(buffer.shape, buffer.strides, buffer.dtype)
    outside = (buffer.shape, buffer.strides, buffer.dtype)
    like = next((i for i, b in read if (b.shape, b.strides, b.dtype) == outside), None)
    if like is not None:
        return f"torch.zeros_like({like})"
    where = f"dtype=torch.{buffer.dtype}, device={device!r}"
    if buffer.strides == contiguous_strides(buffer.shape):
        return f"torch.zeros({buffer.shape!r}, {where})"
    return f"{empty(buffer.shape, buffer.strides, buffer.dtype)}.zero_()"
