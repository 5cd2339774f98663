"""Blocks that no compiler should be asked to write out."""

from __future__ import annotations

import textwrap
import time

import pytest

from dvk import nanolang
from dvk.nanolang.lint.width import MANY, MOST, too_wide
from dvk.records import Task
from tests.composer.programs import run_source
from tests.nanolang.compact_cases import rand
from tests.nanolang.compact_programs import captured

ROW = textwrap.indent(
    textwrap.dedent("""\
    x = tl.program_id(0) * 8 + tl.arange(0, 8)[:, None]
    r = tl.arange(0, pow2(s1))[None, :]
    e0 = tl.load(x0 + (x * s1 + r), r < s1)
    tl.store(v0 + (x * s1 + r), e0, r < s1)"""),
    "    ",
).splitlines()


@pytest.mark.parametrize(
    "head, size, each",
    [
        ("cdiv(s0, 8), 1", 14957, 8 * 16384 // 32),
        ("cdiv(s0, 8), 16", 14957, None),
        ("cdiv(s0, 8), 1", 1000, None),
        ("cdiv(s0, 8), 4", 8192, None),
        ("cdiv(s0, 8), 4", 8193, 1024),
        ("cdiv(s0, 8), warps", 14957, None),
        ("(", 14957, None),
    ],
)
def test_elements_of_a_block_are_counted_for_each_thread(
    head: str, size: int, each: int | None
) -> None:
    why = too_wide("k0", head, ROW, {"s0": 64, "s1": size})
    said = f"kernel k0 gives each thread {each} elements, and may give {MOST}: smaller blocks or more warps"
    assert why == (None if each is None else said)
    assert too_wide("k0", head, ["    x = tl.arange(0, 1 <", "    )"], {}) is None, (
        "what cannot be read is for others to tell"
    )


@pytest.mark.parametrize(
    "head, line, said",
    [
        ("1, " + "+".join(["1"] * 2500), "tl.arange(0, 8)", None),
        ("1, 4", "f" + "()" * 900, None),
        ("1, 4", "a[" * 90 + ", ".join("b" * 20_000) + "]" * 90, None),
        ("1, 4", "tl.arange(0, 0x" + "f" * 5000 + ")", f"each thread more than {MANY} elements"),
        (
            "1, 4",
            " + ".join(f"tl.arange(0, 9000000000)[{':, ' * axis}None]" for axis in range(1, 600)),
            f"more than {MANY}",
        ),
    ],
    ids=["deep head", "deep calls", "long slices", "long number", "many axes"],
)
@pytest.mark.slow
def test_hostile_texts_neither_fail_nor_take_long(head: str, line: str, said: str | None) -> None:
    began = time.process_time()
    why = too_wide("k0", head, [f"    r = {line}"], {})
    assert why is None if said is None else said in str(why)
    assert time.process_time() - began < 2


def test_such_a_text_is_unreadable() -> None:
    source = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    task = Task(id="t", name="t", source=source, entry="Model", kind="module")
    graph = captured(run_source(source).Model(), [rand(8, 40_000)])
    body = "    x = tl.program_id(0)\n    r = tl.arange(0, {})\n    tl.store(v0 + (x * s1 + r), r.to(tl.float32), r < s1)\n"
    text = f"k0[s0, 1]:\n{body}return v0"
    with pytest.raises(nanolang.ParseError, match="k0 gives each thread 2048 elements"):
        nanolang.assemble(task, graph, text.format("pow2(s1)"), "triton")
    narrow = text.replace("tl.arange(0, {})", "r0 + tl.arange(0, 1024)").replace(
        "    tl.store", "        tl.store"
    )
    narrow = narrow.replace("    r =", "    for r0 in range(0, s1, 1024):\n        r =")
    assert nanolang.assemble(task, graph, narrow, "triton").backend == "triton"
