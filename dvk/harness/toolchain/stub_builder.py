"""Build of one of Triton's C libraries, after checking that its text is Triton's. Trusted; runs no candidate code.

Sandbox target. One request {name, source}, one answer {library: base64, or null if the text is not one that Triton writes}.
"""

from __future__ import annotations

import base64
import re
import tempfile
from pathlib import Path
from typing import Any

from dvk.sandbox import RequestChannel

_DECLARED = re.compile(r"^\s+(PyObject\*|double|u?int\d+_t) _arg(\d+);", re.MULTILINE)
_INTEGERS = {
    f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits}"
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
MOST_ARGUMENTS = 256


def serve(channel: RequestChannel) -> None:
    """Answer one request."""
    request = channel.receive()
    if request is None:
        return
    try:
        library = built(str(request["name"]), str(request["source"]))
    except Exception as error:  # noqa: BLE001 - other versions of Triton, no compiler: the runner builds it, or says why not
        print(f"{type(error).__name__}: {error}", flush=True)
        library = None
    channel.send({"library": None if library is None else base64.b64encode(library).decode()})


def built(name: str, source: str) -> bytes | None:
    """Return the library, None if `source` is not Triton's."""
    from triton.backends.nvidia import driver
    from triton.runtime import build

    if source != ours(driver, name, source):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.c"
        path.write_text(source)
        made = build._build(
            name,
            str(path),
            folder,
            driver.library_dirs(),
            driver.include_dirs,
            driver.libraries,
            [],
        )
        return Path(made).read_bytes()


def ours(driver: Any, name: str, source: str) -> str | None:
    """Return Triton's text for the kernel signature of `source`; None if Triton would write none."""
    if name == "cuda_utils":
        return (Path(driver.__file__).parent / "driver.c").read_text()
    types = signature(source)
    if name != "__triton_launcher" or types is None or not hasattr(driver, "make_launcher"):
        return None
    return str(driver.make_launcher({}, dict(enumerate(types)), None))


def signature(source: str) -> list[str] | None:
    """Return a kernel's argument types, as Triton names them, from the text of its launcher; None if they cannot be determined."""
    declared = {int(number): kind for kind, number in _DECLARED.findall(source)}
    if sorted(declared) != list(range(len(declared))) or len(declared) > MOST_ARGUMENTS:
        return None
    types: list[str] = []
    for number in range(len(declared)):
        kind = declared[number]
        packed = re.search(rf"= pack_(fp16|bf16|fp32|fp64)\(_arg{number}\);", source)
        if kind == "double" and packed:
            types.append(packed[1])
        elif kind == "PyObject*":
            types.append("*i8" if f"getPointer(_arg{number}, {number})" in source else "constexpr")
        elif kind in _INTEGERS:
            types.append(_INTEGERS[kind])
        else:
            return None
    return types
