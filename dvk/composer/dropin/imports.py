"""Modules that the guards of a drop-in import."""

from __future__ import annotations

import re

from dvk.composer.runtime.words import words

MODULES = (
    "copyreg",
    "ctypes",
    "dis",
    "functools",
    "glob",
    "hashlib",
    "inspect",
    "io",
    "json",
    "os",
    "operator",
    "pickle",
    "shlex",
    "shutil",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "types",
    "warnings",
    "weakref",
)
"""Modules that the guards of a drop-in may import."""
OWNERS = re.compile(r"(?<![\w.])(\w+)\.")
"""A name whose attribute is read."""


def modules_used(text: str) -> list[str]:
    """Those of `MODULES` whose attributes a text reads."""
    used = words(OWNERS, text)
    return [name for name in MODULES if name in used]
