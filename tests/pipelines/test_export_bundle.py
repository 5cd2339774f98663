"""`dvk export --bundle`: the first call compiles nothing, and no stale or foreign file is loaded."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dvk.composer.runtime import cpp_load, cuda_launch
from dvk.errors import MachineError, UsageError
from dvk.pipelines.export import ExportRequest, export
from tests.pipelines.proven_runs import NESTED, NORM, proven_run

CALL = """
import sys
import best
import torch

torch.manual_seed(0)
model = best.ModelNew(*best.get_init_inputs())
with torch.no_grad():
    result = model(*best.get_inputs())
loaded = [line.split()[-1] for line in open("/proc/self/maps") if ".bundle/" in line]
print("kernels" if best._dvk_k0 is not None else "original", "bundle" if loaded else "cache")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    run = proven_run(place / "run", NESTED)
    request = ExportRequest(
        run=run, target=place / "out", to="file", bundle=("native", "x86-64-v2")
    )
    files = export(request)["files"]
    assert files[0] == "best.bundle/" + files[0].partition("/")[2] and len(files) == 6
    return place / "out"


def first_call(folder: Path, cache: Path, compiler: str) -> str:
    """What the first call of a process ran, and where its kernels came from."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALL],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "CXX": compiler, "DVK_CACHE": str(cache)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_first_call_compiles_nothing(folder: Path, tmp_path: Path) -> None:
    assert first_call(folder, tmp_path, "/bin/false") == "kernels bundle"
    assert not list(tmp_path.rglob("*.so"))


def test_stale_and_foreign_files_are_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "here.bundle"
    place.mkdir()
    monkeypatch.setattr(cpp_load, "__file__", str(tmp_path / "here.py"))
    flags = ("-shared", "-fPIC")
    made = tmp_path / "made.so"
    subprocess.run(
        ["g++", "-x", "c++", "-", "-o", made, *flags],
        input=b'extern "C" int seven() { return 7; }',
        check=True,
    )
    key = hashlib.sha256("\0".join(["text", *flags]).encode()).hexdigest()[:24]
    path = place / f"{key}.native"
    path.write_bytes(made.read_bytes())
    good = {
        "arch": "native",
        "machine": cpp_load.os.uname().machine,
        "needs": sorted(cpp_load.dvk_cpu_features()),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    facts = path.with_name(path.name + ".json")

    def found(source: str = "text", options: tuple[str, ...] = flags, **other: object) -> bool:
        facts.write_text(json.dumps({**good, **other}))
        library = cpp_load.dvk_prebuilt(source, options)
        return library is not None and library.seven() == 7

    path.write_bytes(b"no library")
    assert not found(sha256=hashlib.sha256(b"no library").hexdigest())
    path.write_bytes(made.read_bytes())
    assert found()
    assert not found(source="other text") and not found(options=(*flags, "-O3"))
    assert not found(needs=[*good["needs"], "a_feature_of_another_cpu"])
    assert not found(machine="another")
    path.unlink()  # it is loaded: its pages must stay
    path.write_bytes(made.read_bytes()[:-100])
    assert not found(), "a damaged file"
    facts.write_text("{")
    assert cpp_load.dvk_prebuilt("text", flags) is None


def test_a_bundled_cubin_is_taken_for_its_architecture_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "here.bundle"
    place.mkdir()
    monkeypatch.setattr(cpp_load, "__file__", str(tmp_path / "here.py"))
    monkeypatch.setattr(cuda_launch, "dvk_nvrtc", lambda: pytest.fail("it was compiled"))
    key = hashlib.sha256(b"text\0--std=c++17").hexdigest()[:24]
    (place / f"{key}.sm_90").write_bytes(b"\x7fELF")
    digest = hashlib.sha256(b"\x7fELF").hexdigest()
    (place / f"{key}.sm_90.json").write_text(json.dumps({"arch": "sm_90", "sha256": digest}))
    assert cuda_launch.dvk_cubin("text", ("--std=c++17",), (9, 0)) == b"\x7fELF"
    with pytest.raises(pytest.fail.Exception, match="it was compiled"):
        cuda_launch.dvk_cubin("text", ("--std=c++17",), (8, 0))


@pytest.mark.slow
def test_a_slow_compiler_is_announced_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVK_CACHE", str(tmp_path / "cache"))
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\nsleep 1.2\nexec g++ "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    source = 'extern "C" int eight() { return 8; }'
    for _ in range(2):
        library = cpp_load.dvk_compile(source, ("-shared", "-fPIC"))
        assert library is not None and library.eight() == 8
    assert capfd.readouterr().err.count("compiling its kernels, once per machine") == 1
    monkeypatch.setenv("DVK_STRICT", "1")
    cpp_load.dvk_compile(source + "\n", ("-shared", "-fPIC"))
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_bad_architectures_leave_nothing(tmp_path: Path) -> None:
    cpp = proven_run(tmp_path / "cpp", NORM)
    cuda = proven_run(tmp_path / "cuda", NORM, backend="cuda")
    triton = proven_run(tmp_path / "triton", NORM, backend="triton")
    before = sorted(tmp_path.rglob("*"))
    for run, to, architecture, match in (
        (cpp, "file", "sm_90", "no architecture for C\\+\\+ kernels"),
        (cpp, "python", "pentium", "choose from native"),
        (cpp, "hf", "native", "holds text only"),
        (cuda, "file", "native", "no architecture for CUDA kernels"),
        (triton, "file", "sm_90", "Triton compiles for itself"),
    ):
        with pytest.raises(UsageError, match=match):
            export(ExportRequest(run=run, target=tmp_path / "new", to=to, bundle=(architecture,)))
    if not _has_nvrtc():
        with pytest.raises(MachineError, match="cannot compile for `sm_90`"):
            export(ExportRequest(run=cuda, target=tmp_path / "new", to="file", bundle=("sm_90",)))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"


def _has_nvrtc() -> bool:
    try:
        cuda_launch.dvk_nvrtc()
    except RuntimeError:
        return False
    return True
