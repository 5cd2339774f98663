"""Faster builds of torch extensions (`load_inline`, `load`), without a change of the candidate.

What costs is parsing torch's headers: for one small kernel g++ and nvcc read 14 MB of text, four times over. A toolbox
of trusted, read-only files stands in front of the compilers:
  `include/`  slim forms of torch's own headers (the classes, the operators people call in kernels, pybind), with a
              precompiled form for g++
  `bin/`      `g++` and `nvcc` that try the slim headers first and all of them where those do not do, so that whatever
              compiled before still does
  `path/`     `ninja` that leaves a kept build alone
It is made once per machine and torch version, by a trusted child, never by a candidate. Whole builds are kept per candidate (`keep`,
`restore`): a claim judges the same text in many processes and should compile it in one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from dvk import machine, resources
from dvk.errors import MachineError

OPTIMISED = ("", "-O3")
"""Optimisation flags of the precompiled header: g++ takes it only with the same ones."""
PREPARE_S = 600.0
MAX_BUILD_BYTES = 256 << 20
"""Largest build that is kept."""

_OPERATORS = """add addmm arange baddbmm bmm cat clamp contiguous conv1d conv2d conv3d div empty empty_like empty_strided exp eye full
full_like gelu layer_norm linear log log_softmax matmul max mean min mm mul ones ones_like pow rand randn relu rsqrt sigmoid silu
softmax sqrt stack sub sum tanh tensor transpose where zeros zeros_like""".split()
_NEEDLESS = re.compile(r"^\s*#include <(?:ATen/ATen\.h|torch/library\.h)>\s*$", re.MULTILINE)

_CORE = """\
// Tensors and the operators that extensions call, instead of everything.
#ifndef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
#define DVK_UNDO
#endif
#include <ATen/core/Tensor.h>
#include <ATen/Dispatch.h>
{operators}
"""
_END = "#ifdef DVK_UNDO\n#undef AT_PER_OPERATOR_HEADERS\n#undef DVK_UNDO\n#endif\n"
_EXTENSION = """\
#pragma once
#include <torch/types.h>
#ifndef __CUDACC__
#include <torch/csrc/python_headers.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
"""
_WRAPPER = """\
#!/bin/sh
# The slim headers first; all of them where those do not do, unless what is wrong can have nothing to do with them.
for word in "$@"; do
  if [ "$word" = -c ]; then
    said=$("{real}" -I"{include}" "$@" 2>&1) && exit 0
    if printf '%s' "$said" | grep -m 1 ' error: ' | grep -Eqv "{missing}"; then printf '%s\\n' "$said" >&2; exit 1; fi
    break
  fi
done
exec "{real}" "$@"
"""
_MISSING = "member|declare|defined|type|matching|No such file|argument|conver|template|ambig|incomplete|operator|instance|scope"
"""Words of errors that more headers may fix."""
_NINJA = """\
#!/bin/sh
# A build that was kept is whole as long as its commands and sources are the ones it was made of.
if [ -f dvk_kept ] && [ "$(cat dvk_kept)" = "$({digest})" ]; then echo 'ninja: no work to do.'; exit 0; fi
exec "{real}" "$@"
"""
_DIGEST = (
    'sed "s|$PWD|.|g" build.ninja | cat - *.cpp *.cu *.cc 2>/dev/null | sha256sum | cut -d" " -f1'
)
_RECORDER = """\
#!/bin/sh
for word in "$@"; do
  if [ "$word" = -c ]; then printf '%s\\n' "$@" > "{log}"; fi
done
exec "{real}" -I"{include}" "$@"
"""
_TRIAL = """\
from torch.utils.cpp_extension import load_inline
load_inline("dvk_trial", cpp_sources="torch::Tensor twice(torch::Tensor x) {{ return torch::empty_like(x); }}", functions=["twice"],
            build_directory={folder!r})
"""


def wanted(source: str) -> bool:
    """Whether a candidate's text builds a torch extension."""
    return "cpp_extension" in source


def toolbox() -> Path:
    """Return the folder of this machine's toolbox, which may not exist yet: by torch, compilers and Python."""
    parts = [
        str(machine.version("torch")),
        sys.version,
        _banner(_compiler()),
        str(_nvcc()),
        str(_torch() or ""),
        _own(),
    ]
    return (
        resources.home()
        / "cache"
        / "extension"
        / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    )


def env() -> dict[str, str]:
    """Return the environment that makes a runner use the toolbox; empty if it has not been made."""
    home = toolbox()
    if not (home / "ready").is_file():
        return {}
    result = {"CXX": str(home / "bin" / "g++")}
    # Folders on PATH can be read in isolation, so the whole toolbox is on it, too.
    result["PATH"] = os.pathsep.join(
        [str(home / "path"), str(home), os.environ.get("PATH", os.defpath)]
    )
    if (home / "bin" / "nvcc").is_file():
        result["PYTORCH_NVCC"] = str(home / "bin" / "nvcc")
    return result


def prepare(precompiled: bool = True) -> Path:
    """Make the toolbox if it is missing: about half a minute, and with precompiled headers a minute and 0.8 GB.

    Args:
        precompiled: make the precompiled header too; useful if many extensions are built at once.

    Raises:
        MachineError: there is no torch, no g++ or no ninja, or the trial build fails even with all headers.
    """
    home = toolbox()
    if (home / "ready").is_file():
        return home
    torch, compiler = _torch(), _compiler()
    if torch is None or compiler is None:
        raise MachineError(
            "torch extensions need torch and g++", "install g++ (apt-get install g++)"
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix="making-", dir=home.parent))
    try:
        _write_headers(aside / "include", torch)
        flags = _trial(aside, compiler, home)
        if precompiled:
            for number, optimised in enumerate(OPTIMISED):
                _precompile(
                    aside / "include",
                    compiler,
                    [*flags, *([optimised] if optimised else [])],
                    number,
                )
        _write_wrappers(aside, compiler, home / "include")
        (aside / "ready").touch()
        _read_only(aside)
        try:
            os.rename(aside, home)
        except OSError:
            if not (
                home / "ready"
            ).is_file():  # another process was faster: its toolbox is equivalent
                raise
    finally:
        _remove(aside)
    return home


# ------------------------------------------------------------------ the toolbox


def _write_headers(include: Path, torch: Path) -> None:
    """Slim headers, made from the installed ones."""
    folder = include / "torch"
    folder.mkdir(parents=True)
    types = next(
        p
        for p in (
            torch / "include/torch/csrc/api/include/torch/types.h",
            torch / "include/torch/types.h",
        )
        if p.is_file()
    )
    operators = [
        name for name in _OPERATORS if (torch / "include" / "ATen" / "ops" / f"{name}.h").is_file()
    ]
    core = _CORE.format(operators="\n".join(f"#include <ATen/ops/{name}.h>" for name in operators))
    (folder / "dvk_core.h").write_text("#pragma once\n" + core)
    slim = _NEEDLESS.sub("", types.read_text()).replace(
        "#pragma once", "#pragma once\n#include <torch/dvk_core.h>", 1
    )
    (folder / "types.h").write_text(f"{slim}\n{_END}")
    (folder / "extension.h").write_text(_EXTENSION)


def _trial(aside: Path, compiler: str, home: Path) -> list[str]:
    """Build a small extension with the slim headers and return the flags torch compiled it with."""
    build, recorder = aside / "trial", aside / "recorder" / "g++"
    build.mkdir()
    recorder.parent.mkdir()
    log = aside / "flags"
    _script(recorder, _RECORDER.format(log=log, real=compiler, include=aside / "include"))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL.format(folder=str(build))],
            capture_output=True,
            text=True,
            timeout=PREPARE_S,
            env={**os.environ, "CXX": str(recorder), "MAX_JOBS": "2"},
        )
        if done.returncode or not log.is_file():
            raise MachineError(
                f"a trial extension does not build with slim headers: {(done.stdout + done.stderr)[-800:]}",
                "install ninja (pip install ninja), or use candidates that compile with NVRTC or ctypes",
            )
        words = log.read_text().splitlines()
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"a trial extension took longer than {PREPARE_S:.0f} s to build",
            "try again on a less busy machine",
        ) from None
    finally:
        shutil.rmtree(build, ignore_errors=True)
        shutil.rmtree(recorder.parent, ignore_errors=True)
        log.unlink(missing_ok=True)
    return _lasting(words)


def _lasting(words: list[str]) -> list[str]:
    """Return the flags of a compile command that every extension's has: no files, no name of the extension."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-c", "-o", "-MF"):
            skip = True
        elif (
            word not in ("-MMD", "-MD")
            and not word.startswith("-DTORCH_EXTENSION_NAME")
            and not word.endswith((".cpp", ".o"))
        ):
            kept.append(word)
    return kept


def _precompile(include: Path, compiler: str, flags: list[str], number: int) -> None:
    """Make one precompiled form; several for one header share a folder, and g++ takes the first that fits."""
    header = include / "torch" / "extension.h"
    forms = header.with_name("extension.h.gch")
    forms.mkdir(exist_ok=True)
    command = [
        compiler,
        f"-I{include}",
        *flags,
        "-x",
        "c++-header",
        str(header),
        "-o",
        str(forms / f"{number}.gch"),
    ]
    if subprocess.run(command, capture_output=True).returncode:
        # Without it g++ reads the slim headers.
        (forms / f"{number}.gch").unlink(missing_ok=True)


def _write_wrappers(folder: Path, compiler: str, include: Path) -> None:
    (folder / "bin").mkdir()
    nvcc = _nvcc()
    for name, real in (("g++", compiler), ("nvcc", nvcc)):
        if real is not None:
            _script(
                folder / "bin" / name, _WRAPPER.format(real=real, include=include, missing=_MISSING)
            )
    ninja = shutil.which("ninja") or shutil.which("ninja", path=os.path.dirname(sys.executable))
    if ninja is not None:
        (folder / "path").mkdir()
        _script(folder / "path" / "ninja", _NINJA.format(real=ninja, digest=_DIGEST))


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _read_only(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & ~0o222)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _compiler() -> str | None:
    chosen = os.environ.get("CXX", "")
    return (
        shutil.which(chosen)
        if chosen and "/" not in chosen
        else shutil.which("g++") or shutil.which("c++")
    )


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    beside = os.path.join(home, "bin", "nvcc")
    return beside if os.path.exists(beside) else shutil.which("nvcc")


def _banner(compiler: str | None) -> str:
    if compiler is None:
        return ""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.partition(
        "\n"
    )[0]


def _own() -> str:
    """Return the key of the toolbox, which depends on this file's text."""
    return Path(__file__).read_text()


# ------------------------------------------------------------------ whole builds


def keep(key: str, built: Path) -> bool:
    """Keep the build of a candidate's process, under the candidate's identity; call it before that process sees any input.

    Args:
        key: identity of the candidate, environment and machine: a hash.
        built: its `TORCH_EXTENSIONS_DIR`; untrusted, so links and devices are left out.

    Returns:
        Whether it is kept now.
    """
    target = _builds() / key
    if target.is_dir():
        return True
    try:
        files = [
            path
            for path in sorted(built.rglob("*"))
            if stat.S_ISREG(os.lstat(path).st_mode) and path.name != "lock"
        ]
        if (
            not any(path.suffix == ".so" for path in files)
            or sum(os.lstat(p).st_size for p in files) > MAX_BUILD_BYTES
        ):
            return False
    except OSError:  # the process ended, and its folder was deleted
        return False
    _builds().mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=_builds()))
    try:
        _copy(built, files, aside)
        for folder in {path.parent for path in aside.rglob("build.ninja")}:
            mark = subprocess.run(
                ["sh", "-c", _DIGEST.replace("$PWD", str(built / folder.relative_to(aside)))],
                cwd=folder,
                capture_output=True,
                text=True,
            ).stdout.strip()
            (folder / "dvk_kept").write_text(mark)
        os.rename(aside, target)
    except OSError:
        return target.is_dir()
    finally:
        _remove(aside)
    return True


def kept(key: str) -> bool:
    """Whether there is a kept build."""
    return (_builds() / key).is_dir()


def restore(key: str, folder: Path) -> bool:
    """Put a kept build into a fresh `TORCH_EXTENSIONS_DIR`, so that torch has nothing to build there."""
    source = _builds() / key
    if not source.is_dir():
        return False
    _copy(source, [path for path in sorted(source.rglob("*")) if path.is_file()], folder)
    return True


def _copy(source: Path, files: list[Path], target: Path) -> None:
    """Return files with their times, since ninja compares those."""
    for path in files:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as reader, open(place, "wb") as writer:
            shutil.copyfileobj(reader, writer)
            kept = os.fstat(reader.fileno())
        os.utime(place, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        place.chmod(0o755 if path.suffix == ".so" else 0o644)


def _builds() -> Path:
    return resources.home() / "cache" / "extension" / "built"
