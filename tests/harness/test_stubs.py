"""Triton's C libraries from the parent's store: Triton's texts are recognised, and a runner gets them without a compiler."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from dvk.harness.toolchain import stub_builder, stubs
from tests.harness.conftest import QUICK

pytest.importorskip("triton")

LAUNCHER = """
static PyObject* launch(PyObject* self, PyObject* args) {{
  {declared}
  {pointers}
  {packed}
}}
"""
TYPES = ["*fp32", "*bf16", "fp32", "bf16", "i64", "u8", "i1", "constexpr", "i32"]


def make_launcher(constants: object, signature: dict[int, str], meta: object) -> str:
    """In the form that Triton 3.6 writes: pointers and constants are objects, distinguished by their use."""
    names = {"i1": "int8_t", "i8": "int8_t", "u8": "uint8_t", "i32": "int32_t", "i64": "int64_t"}
    objects = ("constexpr",)
    kinds = {
        i: "PyObject*" if t[0] == "*" or t in objects else names.get(t, "double")
        for i, t in signature.items()
    }
    return LAUNCHER.format(
        declared="\n  ".join(f"{kind} _arg{i};" for i, kind in kinds.items()),
        pointers="\n  ".join(
            f"DevicePtrInfo ptr_info{i} = getPointer(_arg{i}, {i});"
            for i, t in signature.items()
            if t[0] == "*"
        ),
        packed="\n  ".join(
            f"uint32_t _arg{i}_storage = pack_{t}(_arg{i});"
            for i, t in signature.items()
            if t in ("fp32", "bf16")
        ),
    )


DRIVER = SimpleNamespace(make_launcher=make_launcher, __file__=__file__)


def test_a_launcher_tells_its_signature() -> None:
    text = make_launcher({}, dict(enumerate(TYPES)), None)
    assert stub_builder.signature(text) == [
        "*i8",
        "*i8",
        "fp32",
        "bf16",
        "i64",
        "u8",
        "i8",
        "constexpr",
        "i32",
    ]
    assert stub_builder.ours(DRIVER, "__triton_launcher", text) == text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\nvoid more(void) {}",
        lambda text: text.replace("launch(", "launch_(", 1),
        lambda text: text.replace("_arg3;", "_arg4;"),
        lambda text: "int main;",
    ],
)
def test_what_triton_would_not_write_is_not_triton_s(change) -> None:
    text = change(make_launcher({}, dict(enumerate(TYPES)), None))
    assert stub_builder.ours(DRIVER, "__triton_launcher", text) != text


def test_a_foreign_text_is_refused_and_not_kept(tmp_path: Path) -> None:
    store = stubs.Stubs(QUICK.limits, tmp_path / "store")
    assert store.get("cuda_utils", "int spam(void) { return 1; }") is None
    assert store.get("__triton_launcher", "int spam(void) { return 1; }") is None
    assert store.get("anything", "") is None
    assert not list(tmp_path.rglob("*"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_runner_asks_before_it_compiles(tmp_path: Path) -> None:
    from triton import knobs
    from triton.runtime import build

    source = "int spam(void) { return 1; }"
    store = stubs.Stubs(QUICK.limits, tmp_path / "store")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / hashlib.sha256(f"cuda_utils\0{source}".encode()).hexdigest()).write_bytes(
        b"from the store"
    )
    text = tmp_path / "spam.c"
    text.write_text(source)
    line = store.line()
    stubs.ask_through(line.detach())
    try:
        for _ in range(3):
            assert (
                Path(
                    build._build("cuda_utils", str(text), str(tmp_path), [], [], [], [])
                ).read_bytes()
                == b"from the store"
            )
        made = build._build("spam", str(text), str(tmp_path), [], [], [], [])
        assert Path(made).read_bytes()[:4] == b"\x7fELF", "what is not Triton's is compiled here"
        assert (
            Path(build._build("cuda_utils", str(text), str(tmp_path), [], [], [], [])).read_bytes()
            == b"from the store"
        )
    finally:
        knobs.build.impl = None
