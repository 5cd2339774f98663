"""Libraries of GPU kernels taken out of a running process: known by what they hold, wherever they lie; what is its own stays."""

from __future__ import annotations

import platform
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from dvk.harness.provenance import disable_ops, libraries
from dvk.harness.supervision import elf
from dvk.sandbox import Death, Message, SandboxSession
from tests.harness.conftest import QUICK

pytestmark = pytest.mark.skipif(
    platform.machine() not in disable_ops.TRAP, reason="no trap is known for this machine"
)
TARGET = "tests.harness.disable_ops_child:serve"


def library(path: Path, *, kernels: bool, seed: int) -> Path:
    """A shared object with a function `number`, much code besides, and, if asked for, a section as nvcc makes them."""
    path.parent.mkdir(exist_ok=True)
    (path.parent / "code").write_bytes(random.Random(seed).randbytes(1 << 17))
    parts = [f'.section .text\\n .incbin \\"{path.parent}/code\\"\\n']
    if kernels:
        parts.append('.section .nv_fatbin,\\"a\\"\\n .quad 1\\n .section .text\\n')
    source = (
        "".join(f'asm("{part}");\n' for part in parts)
        + f'extern "C" int number() {{ return {seed}; }}\n'
    )
    (path.parent / "source.cpp").write_text(source)
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", str(path.parent / "source.cpp"), "-o", str(path)],
        check=True,
    )
    return path


def without_code(path: Path) -> Path:
    """The same file, whose sections say that none of them is executed."""
    data = bytearray(path.read_bytes())
    (offset,), (count,) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<H", data, 0x3C)
    for i in range(count):
        struct.pack_into("<Q", data, offset + 64 * i + 8, 0)
    path.write_bytes(data)
    assert not elf.code(str(path))
    return path


def number(session: SandboxSession, path: Path) -> Message | Death:
    session.send({"call": str(path)})
    return session.receive(30)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.slow
def test_libraries_of_kernels_go_and_others_stay(tmp_path: Path) -> None:
    home = tmp_path / "home"
    foreign = library(tmp_path / "package" / "libfast.so", kernels=True, seed=1)
    plain = library(tmp_path / "system" / "libplain.so", kernels=False, seed=2)
    own = library(home / "own.so", kernels=True, seed=3)
    everybodys = library(tmp_path / "package" / "libcufile.so.0", kernels=True, seed=4)
    copy = without_code(Path(shutil.copy(foreign, home / "mine.so")))
    assert elf.section(str(foreign), b".nv_fatbin") and not elf.section(str(plain), b".nv_fatbin")
    for mapped in (foreign, copy):
        with SandboxSession(TARGET, QUICK.limits) as session:
            everything = (foreign, plain, own, everybodys, copy)
            assert all(isinstance(number(session, path), Message) for path in everything)
            taken = libraries.disable_libraries(session.pid, str(home))
            assert {span.path for span in taken if span.path.startswith(str(tmp_path))} == {
                str(foreign),
                str(copy),
            }
            assert libraries.disable_libraries(session.pid, str(home), taken) == taken
            assert all(
                isinstance(number(session, path), Message) for path in (plain, own, everybodys)
            )
            session.send({"call": "softmax"})
            assert isinstance(session.receive(30), Message), (
                "PyTorch's operators are another matter, and tensors are made and freed"
            )
            death = number(session, mapped)
            assert isinstance(death, Death) and death.reason == "signal SIGTRAP"


def test_a_process_that_has_ended_raises_no_error() -> None:
    with SandboxSession(TARGET, QUICK.limits) as session:
        pid = session.pid
    assert libraries.disable_libraries(pid, "/nowhere") == frozenset()
