"""The first error in a compiler's log, with the line it points at, however long the log is.

Knows the forms of NVRTC, nvcc, ptxas, g++, clang, linkers, ninja's wrapping of them, and Triton's error texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_CHARS = 1200
"""Most characters: template errors of C++ can fill pages; their first lines suffice."""
MAX_NOTES = 4
"""Lines kept after the first error: the source line, the caret, notes on what was expected."""

_PLACED = re.compile(
    r"^(?P<file>[^\s:(][^:()\n]*?)(?:\((?P<cuda>\d+)\)|:(?P<gnu>\d+)(?::\d+)?)\s*:\s*(?:fatal |catastrophic |internal )?error\b",
    re.I,
)
_PTXAS = re.compile(r"^(?:ptxas|nvlink)\b.*?(?:error|fatal)\b", re.I)
_LINKER = re.compile(
    r"undefined reference to|undefined symbol|cannot find -l|multiple definition of"
)
_PLAIN = re.compile(r"^(?:\S+: )?(?:fatal )?error\b\s*[:#]", re.I)
_TRITON = re.compile(r"^(?:\S*Error: |.*CompilationError: )?at (?P<line>\d+):\d+:$")
_CARET = re.compile(r"^\s*(?:\d+\s*\|)?\s*[\^~]+[\s^~]*$")
_NEXT = re.compile(
    r"\b(?:error|warning)\b\s*[:#]|^\d+ errors? (?:detected|generated)|^ninja:|^FAILED:|^In file included|"
    r"^compilation terminated",
    re.I,
)


def first_error(log: str, sources: Mapping[str, str] | None = None) -> str:
    """Return the first error of `log` with its place; the log's last lines if no error is recognised.

    Args:
        log: a compiler's output.
        sources: text by file name, to quote the line of an error if the log does not show it.

    Returns:
        At most `MAX_CHARS` characters, empty for an empty log.
    """
    lines = [line.rstrip() for line in log.replace("\r\n", "\n").split("\n")]
    for form in (_from_triton, _from_compiler):
        error = form(lines, sources or {})
        if error:
            return error[:MAX_CHARS]
    told = [line for line in lines if line.strip()]
    return "\n".join(told[-6:])[-MAX_CHARS:]


def _from_compiler(lines: list[str], sources: Mapping[str, str]) -> str | None:
    # A linker's or ninja's error follows from a compiler's, if there is one.
    for wanted in ((_PLACED,), (_PTXAS, _LINKER), (_PLAIN,)):
        for number, line in enumerate(lines):
            if any(pattern.search(line.strip()) for pattern in wanted):
                return _with_place(lines, number, sources)
    return None


def _with_place(lines: list[str], number: int, sources: Mapping[str, str]) -> str:
    placed = [lines[number].strip()]
    follows = []
    for line in lines[number + 1 : number + 1 + MAX_NOTES]:
        if not line.strip() or _NEXT.search(line) or _PLACED.search(line.strip()):
            break
        follows.append(line)
    place = _PLACED.search(placed[0])
    if place and not any(_CARET.match(line) for line in follows):
        quoted = _quote(place["file"], int(place["cuda"] or place["gnu"]), sources)
        follows = ([quoted] if quoted else []) + follows
    return "\n".join([*placed, *follows])


def _quote(file: str, line: int, sources: Mapping[str, str]) -> str | None:
    text = sources.get(file) or sources.get(file.rpartition("/")[2])
    if text is None:
        return None
    all_lines = text.splitlines()
    return f"    {line} | {all_lines[line - 1].rstrip()}" if 0 < line <= len(all_lines) else None


def _from_triton(lines: list[str], sources: Mapping[str, str]) -> str | None:
    """Parse Triton's form: a function up to the error, a caret, and the error; one such block per level of calls, the innermost first.

    The first block with a reason gives the reason, the last block the line: that of the kernel.
    """
    del sources
    starts = [n for n, line in enumerate(lines) if _TRITON.match(line.strip())]
    place, reason = "", ""
    for start in starts:
        caret = next((n for n in range(start + 1, len(lines)) if _CARET.match(lines[n])), None)
        if caret is None:
            continue
        after = lines[caret + 1] if caret + 1 < len(lines) else ""
        reason = reason or after.strip()
        line = _TRITON.match(lines[start].strip())
        assert line is not None
        place = "\n".join(
            [f"line {line['line']} of the kernel:", *lines[max(caret - 1, start + 1) : caret + 1]]
        )
    return f"{reason or 'it does not compile'}\n{place}" if place else None
