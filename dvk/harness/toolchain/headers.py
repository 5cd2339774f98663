"""Standard headers that C++ candidates begin with, compiled beforehand: half of what g++ does for a small kernel is to read them.

g++ itself decides whether a precompiled form may stand for a header: for the first one of a text only, and under the
same version and the flags that matter; else it reads the header, silently. So nothing compiles, or computes, in another
way than without, and no word of the candidate or of its command is changed: the forms lie in a separate folder that
CPLUS_INCLUDE_PATH names. Each is made when first asked for, by this process and of the system's headers alone.

Measured with `<cmath>` and an OpenMP loop (g++ 12): 0.28 s of processor time without, 0.14 s with, of which reading the text of
the loop, compiling and linking it are 0.13 s.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from dvk import machine, resources
from dvk.records import content_hash

HEADERS = ("algorithm", "cmath", "cstdlib", "thread", "vector")
"""Made on demand, of those that take long to read; 15 MB each."""
FLAGS = ("-O3", "-march=native", "-fPIC")
"""What nearly every candidate compiles with; -O2 reads the same form."""
OPTIONAL = ("-fopenmp", "-ffast-math")
"""A form is made for those that a candidate's text names."""
MAKE_S = 60.0

_FIRST = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"][^>\"\n]*[>\"])", re.MULTILINE)


def env(source: str) -> dict[str, str]:
    """What a candidate's environment needs for its first header to be read in its precompiled form; nothing where there is none."""
    match = _FIRST.search(source)
    header = match.group(1)[1:-1] if match and match.group(1).startswith("<") else ""
    if header not in HEADERS:
        return {}
    folder = _made(os.environ.get("CXX", ""), os.environ.get("PATH", ""), header, tuple(flag for flag in OPTIONAL if flag in source))
    if folder is None:
        return {}
    return {"CPLUS_INCLUDE_PATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("CPLUS_INCLUDE_PATH", "")]))}


@cache
def _made(cxx: str, path: str, header: str, flags: tuple[str, ...]) -> Path | None:
    """The folder with a header's form for some flags, made if it is missing; None where that cannot be."""
    compiler = shutil.which(cxx or "g++", path=path)
    if compiler is None:
        return None
    try:
        banner = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=MAKE_S).stdout
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
        folder = resources.home() / "cache" / "headers" / content_hash(compiler, banner, library, machine.isa(), *FLAGS)
        form = folder / f"{header}.gch" / f"{'-'.join(flag[2:] for flag in flags) or 'plain'}.gch"
        if not form.is_file():
            _make([compiler, *FLAGS, *flags], header, form)
    except (OSError, subprocess.SubprocessError):
        return None
    return folder


def _make(command: list[str], header: str, form: Path) -> None:
    form.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=form.parent.parent) as aside:
        text, made = Path(aside, "text.h"), Path(aside, "made")
        text.write_text(f"#include <{header}>\n")
        subprocess.run([*command, "-x", "c++-header", str(text), "-o", str(made)], capture_output=True, timeout=MAKE_S, check=True)
        made.chmod(0o444)
        os.replace(made, form)  # another process may have been faster: its form is as good
