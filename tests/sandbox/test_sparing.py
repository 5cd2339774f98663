"""Imports of a warden, and JSON without the library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dvk.sandbox import fork

PACKAGE = Path(fork.__file__).resolve().parent.parent

CHECK = """
import json
from dvk.sandbox import wire
told = {"log": "\\u20ac \\U0001f600 \\n\\x00", "list": [1, -2.5, 1e300, None, True, {}], "big": 2**70}
frames = wire.Frames()
frames.feed(wire.encode(told))
assert frames.next() == told
for bad in (b"{", b"{} {}", b"[1]", b"nothing", b"\\xff", b'{"a": 1'):
    frames.feed(len(bad).to_bytes(4, "little") + bad)
    try:
        frames.next()
    except wire.Garbled:
        continue
    raise AssertionError(bad)
print(*sorted(sys.modules))
"""


def test_a_warden_starts_without_what_takes_long_and_reads_nothing_but_json() -> None:
    program = fork.WARDEN.replace("warden.main(sys.argv[2])", CHECK)
    done = subprocess.run(
        [sys.executable, "-ISc", program, str(PACKAGE)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not {"enum", "re", "selectors", "collections", "typing"} & set(done.stdout.split())
