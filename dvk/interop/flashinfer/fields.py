"""Reading of JSON objects field by field; every error names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvk.errors import UsageError

Json = Mapping[str, Any]
MAX_SIZE = 2**63 - 1
"""Largest size or count: PyTorch's are 64-bit."""


class Fields:
    """One JSON object.

    Args:
        value: what the file holds there.
        where: names it in messages: "`rms.json`", "workload `a1` of `rms.jsonl`".

    Raises:
        UsageError: it is no object.
    """

    def __init__(self, value: Any, where: str):
        self.where = where
        if not isinstance(value, dict):
            raise self.error(f"is {_kind(value)}, not a JSON object")
        self.value: dict[str, Any] = value

    def error(self, what: str, hint: str = "see the schema of FlashInfer-Bench") -> UsageError:
        """An error about this object."""
        return UsageError(f"{self.where} {what}", hint)

    def text(self, name: str) -> str:
        """A required text that is not empty."""
        value = self.value.get(name)
        if not isinstance(value, str) or not value:
            raise self.error(f"has no text `{name}`")
        return value

    def optional_text(self, name: str) -> str:
        """A text; empty if it is absent or null."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, str):
            raise self.error(f"has {_kind(value)} as `{name}`, not a text")
        return value or ""

    def mapping(self, name: str) -> dict[str, Any]:
        """A required object."""
        value = self.value.get(name)
        if not isinstance(value, dict):
            raise self.error(f"has no object `{name}`")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty if it is absent or null."""
        value = self.value.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.error(f"has a `{name}` that is no list of texts")
        return tuple(value)

    def size(self, name: str) -> int:
        """A required whole number of at least 0."""
        value = self.value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SIZE:
            raise self.error(f"has no whole number `{name}`")
        return value


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        UsageError: it cannot be read, or is not JSON.
    """
    return parse_json(_read(path), f"`{path}`")


def read_lines(path: Path) -> list[tuple[int, Any]]:
    """The values of a JSONL file with the numbers of their lines; empty lines are skipped.

    Raises:
        UsageError: it cannot be read, or a line is not JSON.
    """
    return [
        (number, parse_json(line, f"`{path}` line {number}"))
        # Only at "\n": a JSON text may hold U+2028 and other characters at which `splitlines` cuts.
        for number, line in enumerate(_read(path).split("\n"), start=1)
        if line.strip()
    ]


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text."""
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # half of a surrogate pair, which no file can hold
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}", "repair or remove it") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise UsageError(f"`{path}` is not UTF-8 text", "give a JSON file") from None


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
