"""Injection-safe HTML and SVG: text is escaped unless it is already `Markup`.

Every string that reaches a page goes through `el`, so no caller decides whether to escape. It
does not know which elements exist or may nest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal or a browser interprets instead of showing, and lone surrogates; not tab and newline."""

VOID = {"meta", "br", "hr"}


class Markup(str):
    """Text that is markup already."""

    def __html__(self) -> str:
        """Tell Jinja that this needs no escaping."""
        return self


Child: TypeAlias = "str | int | None | Iterable[Child]"


def plain(text: str) -> str:
    """`text` with carriage returns dropped and every other control character shown as �."""
    return CONTROL.sub("\ufffd", text.replace("\r", ""))


def el(tag: str, *children: Child, **attributes: str | int | float | None) -> Markup:
    """One element.

    Args:
        children: strings are escaped, `Markup` is kept, None is skipped, lists are flattened.
        attributes: None leaves one out; `class_` is written `class`, `data_turn` is written `data-turn`.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(plain(_text(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    """Children concatenated, without an element around them."""
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(str(child))
        elif isinstance(child, (str, int)):
            parts.append(html.escape(plain(str(child))))
        else:
            parts.append(join(*child))
    return Markup("".join(parts))


def _text(value: str | int | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
