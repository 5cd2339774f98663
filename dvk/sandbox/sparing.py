"""The parts of `json`, `signal` and `socket` that a warden needs, without their imports.

Each session starts one interpreter, and most of its start are modules that those three import and a warden does not need: `enum`, `re`,
`selectors`, `collections`. Their C parts suffice. Measured on a busy core: 54 ms of processor time with all of them, 22 ms without, 15 ms
of it the bare interpreter.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def install_stand_ins() -> None:
    """Put the C parts under the public names, in a process that has imported none of them; does nothing if they differ."""
    try:
        import _signal  # type: ignore[import-not-found]  # typeshed has none
        import _socket

        json = _json()
        if json.loads(json.dumps({"a": [1, -0.5, None, True, "\u20ac\n"]})) != {
            "a": [1, -0.5, None, True, "\u20ac\n"]
        }:
            return
    except (
        ImportError,
        AttributeError,
        TypeError,
        ValueError,
    ):  # private modules: another Python may have others
        return
    sys.modules.update({"json": json, "signal": _signal, "socket": _socket})


def _json() -> ModuleType:
    """`dumps` and `loads`, which raises `ValueError`."""
    import _json

    class Context:
        strict, object_hook, object_pairs_hook = True, None, None
        parse_float, parse_int, parse_constant = float, int, float

    native: Any = _json
    scan = native.make_scanner(Context())
    encode = native.make_encoder(
        None, None, native.encode_basestring_ascii, None, ": ", ", ", False, False, True
    )
    module = type(sys)("json")

    def loads(text: str | bytes) -> Any:
        if isinstance(text, bytes):
            text = text.decode()
        try:
            value, end = scan(text, 0)
        except Exception:  # noqa: BLE001 - to say what is wrong it would import json.decoder, which is not there
            raise ValueError("not JSON") from None
        if end != len(text):
            raise ValueError("more than one value")
        return value

    def dumps(value: Any) -> str:
        return "".join(encode(value, 0))

    module.__dict__.update(loads=loads, dumps=dumps)
    return module
