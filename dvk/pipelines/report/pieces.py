"""Building blocks of report pages: the document, tables, bars, facts, folded text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.report.code import highlight
from dvk.pipelines.report.markup import Child, Markup, el, join
from dvk.pipelines.report.style import CSS

LONG = 24
"""Rows above which a table scrolls inside the page."""


def document(title: str, *body: Child) -> str:
    """The whole page."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(CSS)),
    )
    return f"<!doctype html>\n{el('html', head, el('body', el('main', *body)), lang='en')}\n"


def footer(manifest: Mapping[str, Any]) -> str:
    """Versions, commit and time of a run.json."""
    versions = manifest.get("versions") or {}
    told = [f"{name} {version}" for name, version in versions.items() if version]
    told += [
        f"{key} {str(manifest[key])[:19]}" for key in ("commit", "started") if manifest.get(key)
    ]
    return " · ".join(told) or "dvk"


def table(heads: Markup, rows: list[Markup], label: str) -> Markup:
    """A table in a box that scrolls when the screen is narrow or the table long."""
    box = "scroll tall" if len(rows) > LONG else "scroll"
    return el(
        "div", el("table", el("thead", heads), el("tbody", rows)), class_=box, **region(label)
    )


def headers(*labels: str | None) -> Markup:
    """Column headers; one that ends in a space is right-aligned, None is a column of bars."""
    return el(
        "tr",
        [
            el("td", class_="room", aria_hidden="true")
            if label is None
            else el(
                "th", label.rstrip(), scope="col", class_="num" if label.endswith(" ") else None
            )
            for label in labels
        ],
    )


def bar(value: float | None, longest: float, kind: str = "bar") -> Markup:
    """A cell with a bar; the number next to it says the same, so a screen reader skips it."""
    drawn = el("span", class_=kind, style=f"width:{100 * value / longest:.1f}%") if value else None
    return el("td", drawn, class_="room", aria_hidden="true")


def facts(rows: Sequence[tuple[Child, Child]]) -> Markup:
    """Terms with their descriptions."""
    return el("dl", [join(el("dt", term), el("dd", text)) for term, text in rows], class_="facts")


def folded(title: str, text: str) -> Markup:
    """Folded text."""
    return el("details", el("summary", title), el("pre", el("code", text), **region(title)))


def source(text: str, label: str) -> Markup:
    """Python, coloured."""
    return el("pre", el("code", highlight(text)), **region(label))


def region(label: str) -> dict[str, str]:
    """Attributes that let a keyboard reach and scroll a box."""
    return {"role": "region", "aria_label": label, "tabindex": "0"}
