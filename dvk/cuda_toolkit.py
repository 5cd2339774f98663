"""Paths of CUDA parts on this machine: NVRTC, nvcc, headers; and the GPU's architecture. Opens no CUDA context."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def _folders() -> tuple[Path, ...]:
    """Folders of CUDA parts, most specific first: site-packages' `nvidia` folder, then toolkits."""
    folders: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for site in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
        folders += [
            *sorted(Path(site).glob("cu[0-9]*"), reverse=True),
            Path(site) / "cuda_nvrtc",
            Path(site) / "cuda_runtime",
        ]
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders += [Path(home) for home in homes if home]
    folders += sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    return tuple(dict.fromkeys(path for path in folders if path.is_dir()))


def _nvrtc_libraries(major: int | None) -> Iterator[Path]:
    chosen = os.environ.get("DVK_NVRTC")
    if chosen:
        yield Path(chosen)
    for place in _folders():
        for folder in ("lib", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            for path in sorted((place / folder).glob("libnvrtc.so.*"), reverse=True):
                if "alt" not in path.name and (
                    major is None or path.name.split(".")[2] == str(major)
                ):
                    yield path


def nvrtc(major: int | None = None) -> Path | None:
    """The NVRTC library, preferably of CUDA `major`; $DVK_NVRTC before all others. None if there is none."""
    wanted = next(_nvrtc_libraries(major), None) if major is not None else None
    return wanted or next(_nvrtc_libraries(None), None)


def include_folders() -> list[Path]:
    """Folders that hold `cuda_fp16.h` and the like, from the first place that has them; triton's own copy is the last resort."""
    places = [place / "include" for place in _folders()]
    spec = importlib.util.find_spec("triton")
    for site in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
        places.append(Path(site) / "backends" / "nvidia" / "include")
    chosen = next((p for p in places if (p / "cuda_fp16.h").is_file()), None)
    return [] if chosen is None else [chosen, *(p for p in (chosen / "cccl",) if p.is_dir())]


def nvcc() -> str | None:
    """nvcc's path, None if there is no toolkit."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    beside = os.path.join(home, "bin", "nvcc")
    return shutil.which("nvcc") or (beside if os.path.exists(beside) else None)


@cache
def capability() -> str | None:
    """Compute capability of the first GPU, as `9.0`; read from nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    first = done.stdout.strip().partition("\n")[0].strip()
    return first if first.replace(".", "", 1).isdigit() else None
