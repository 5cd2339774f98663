"""The table of back ends: every entry keeps the contract; a missing part is named with its remedy."""

from __future__ import annotations

import pytest

from dvk import backends
from dvk.errors import MachineError, UsageError
from dvk.harness.session import static
from tests.harness.conftest import FILES


@pytest.mark.parametrize("name", sorted(backends.BACKENDS))
def test_every_entry_keeps_the_contract(name):
    backend = backends.get(name)
    assert backend.available() is None or len(backend.available()) > 10
    for device in ("cpu", "cuda"):
        assert all(
            isinstance(k, str) and isinstance(v, str) for k, v in backend.env(device).items()
        )
        assert backend.untimed(device) is None or "time" in backend.untimed(device)
    assert backend.install


def test_triton_on_a_cpu_runs_interpreted_and_untimed():
    triton = backends.get("triton")
    assert triton.env("cpu") == {"TRITON_INTERPRET": "1"} and triton.untimed("cpu")
    assert triton.env("cuda") == {} and triton.untimed("cuda") is None


def test_missing_compiler_and_gpu_are_refused_with_a_hint(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MachineError) as caught:
        backends.require("cpp")
    assert "no-such-compiler" in caught.value.message and "g++" in caught.value.hint
    monkeypatch.setenv("CXX", "env g++")
    assert backends.get("cpp").available() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    from dvk import machine

    machine.gpu_names.cache_clear()
    try:
        with pytest.raises(MachineError, match="GPU"):
            backends.require("cuda")
        assert backends.default_device() == "cpu"
    finally:
        machine.gpu_names.cache_clear()


def test_unknown_backend():
    with pytest.raises(UsageError, match="unknown backend"):
        backends.get("fortran")


@pytest.mark.parametrize(
    ("file", "backend"),
    [
        ("good/triton_affine", "triton"),
        ("good/cpp_affine", "cpp"),
        ("good/torch_affine", "cpp"),
        ("good/cuda_affine", "cuda"),
    ],
)
def test_backend_is_read_from_the_text(file, backend):
    source = (FILES / f"{file}.py").read_text()
    assert backends.detect(source) == backend
    assert static.refuse(source) is None
    assert static.calls_cpp(source) == (backend in ("cpp", "cuda") and "torch_affine" not in file)


@pytest.mark.parametrize("source", ["", "  \n", "class Model: pass", "ModelNew" * (1 << 20)])
def test_hopeless_texts_are_refused(source):
    assert static.refuse(source)
