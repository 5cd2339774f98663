"""Pages from the templates in `pages/`: every value is escaped, control characters are shown as �."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dvk.pipelines.report import curves, units
from dvk.pipelines.report.code import highlight
from dvk.pipelines.report.markup import plain
from dvk.records import show_ratio
from dvk.speedups import shown


def render(page: str, manifest: Mapping[str, Any], **values: Any) -> str:
    """One self-contained page: no script, no external resource, light and dark.

    Args:
        page: a template's name without `.html`.
        manifest: run.json; the footer shows its versions.
        values: what the template shows.
    """
    return _environment().get_template(f"{page}.html").render(manifest=manifest, **values).lstrip()


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bytes": units.show_bytes,
        "ms": units.show_ms,
        "s": units.show_s,
        "share": units.show_share,
        "speedup": shown,
        "ratio": show_ratio,
        "python": highlight,
        "drawing": curves.draw,
        "provenance": provenance,
        "json": lambda value: json.dumps(value, indent=2),
        "spaced": lambda text, before="": f"{before}{text} ",
    }
    return made


def provenance(manifest: Mapping[str, Any]) -> str:
    """Versions, commit and time of a run.json."""
    versions = manifest.get("versions") or {}
    told = [f"{name} {version}" for name, version in versions.items() if version]
    told += [
        f"{key} {str(manifest[key])[:19]}" for key in ("commit", "started") if manifest.get(key)
    ]
    return " · ".join(told) or "dvk"


def _safe(value: Any) -> Any:
    """Return the text that a template writes for a value; Jinja escapes it unless it is markup."""
    if value is None:
        return ""
    return value if hasattr(value, "__html__") else plain(str(value))
