"""A skill as Markdown: front matter between `---` lines, then the body.

    ---
    name: online_softmax
    description: One line
    scope: general
    tags: [softmax, reduction]
    recipe: online_softmax
    when: does = softmax, row_length > 16384
    do: kernels = looped online yes
    relations: {refines: [two_pass_softmax], combines: [vectorized_loads, cuda_graph_replay]}
    ---

    ## Motivation …

The front matter is not YAML: a value is the rest of its line, lists are `[a, b]`, `recipe`, `when` and `do`
(`records.skill_block`), and `relations` may be left out, and nothing is guessed. `render(parse(text)) == text` for text in this very
form, and `parse(render(skill))` is `skill` except provenance and evidence, which Markdown does not carry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from dvk.errors import LibraryError
from dvk.records import Skill

REQUIRED = ("Motivation", "Key Idea", "Example")
"""Sections that a body must have, as `## ` headings."""
_KEYS = ("name", "description", "scope", "tags", "recipe", "when", "do", "relations")
_OPTIONAL = ("recipe", "when", "do", "relations")
_RELATION = re.compile(r"(\w+): (\[[^\[\]]*\])(?:, |$)")
_HINT = "the form is: `---`, name, description, scope, tags: [a, b], `---`, then ## Motivation, ## Key Idea, ## Example"


def read(path: Path, *, sections: bool = True) -> Skill:
    """The skill in the file at `path`; as `parse`, and LibraryError when it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise LibraryError(
            f"cannot read `{path}`: {error.strerror}", "give a Markdown file with one skill"
        ) from None
    except UnicodeDecodeError:
        raise LibraryError(f"`{path}` is not UTF-8 text", "save it as UTF-8") from None
    return parse(text, str(path), sections=sections)


def parse(text: str, source: str = "skill", *, sections: bool = True) -> Skill:
    """The skill that `text` describes.

    Args:
        text: the whole of a Markdown file; `\\r\\n` counts as `\\n`.
        source: its name in errors, which read `source:line: error`.
        sections: insist on the REQUIRED sections.

    Raises:
        LibraryError: not in the form above.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0] != "---":
        raise _wrong(source, 1, "expected `---`")
    if "---" not in lines[1:]:
        raise _wrong(source, len(lines), "the front matter has no closing `---`")
    end = lines.index("---", 1)
    values, where = _front_matter(lines[1:end], source)
    body = "\n".join(lines[end + 1 :]).strip("\n")
    if "\0" in text:
        raise _wrong(source, text[: text.index("\0")].count("\n") + 1, "a NUL character")
    if not body.strip():
        raise _wrong(source, end + 1, "no body after the front matter")
    missing = [name for name in REQUIRED if name not in set(_headings(body))] if sections else []
    if missing:
        raise _wrong(source, end + 2, f"missing section `## {missing[0]}`")
    try:
        return Skill.model_validate({**values, "body": body})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise _wrong(source, where.get(key, 1), f"bad {key}: {why}") from None


def render(skill: Skill) -> str:
    """`skill` as Markdown that `parse` reads back.

    Raises:
        LibraryError: a field cannot be written on one line of front matter.
    """
    lines = [f"{key}: {getattr(skill, key)}" for key in ("name", "description", "scope")]
    lines.append(f"tags: {_list(skill.tags)}")
    for key in ("recipe", "when", "do"):
        if (value := getattr(skill, key)) is not None:
            lines.append(f"{key}: {value}")
    if skill.relations:
        relations = ", ".join(f"{kind}: {_list(names)}" for kind, names in skill.relations.items())
        lines.append(f"relations: {{{relations}}}")
    text = "\n".join(["---", *lines, "---", "", skill.body.strip("\n"), ""])
    back = parse(text, f"skill `{skill.name}`", sections=False)
    if any(getattr(back, key) != getattr(skill, key) for key in _KEYS):
        hint = "keep line breaks, commas and brackets out of description, tags and relations, or export as JSONL"
        raise LibraryError(f"skill `{skill.name}` cannot be written as Markdown", hint)
    return text


def _front_matter(lines: list[str], source: str) -> tuple[dict[str, object], dict[str, int]]:
    """The values, and the line of each."""
    values: dict[str, object] = {}
    where: dict[str, int] = {}
    for number, line in enumerate(lines, start=2):
        key, separator, value = line.partition(":")
        value = value.strip()
        if not separator or key not in _KEYS:
            raise _wrong(
                source,
                number,
                f"expected one of {', '.join(_KEYS)}, followed by a colon; found `{line[:60]}`",
            )
        if key in values:
            raise _wrong(source, number, f"{key} given twice")
        if not value:
            raise _wrong(source, number, f"{key} is empty")
        where[key] = number
        if key == "tags":
            values[key] = _parse_list(value, source, number)
        elif key == "relations":
            values[key] = _parse_relations(value, source, number)
        else:
            values[key] = value
    for key in _KEYS:
        if key not in values and key not in _OPTIONAL:
            raise _wrong(source, len(lines) + 2, f"{key} is missing")
    return values, where


def _parse_list(value: str, source: str, number: int) -> tuple[str, ...]:
    inside = value[1:-1]
    if not (value.startswith("[") and value.endswith("]")) or re.search(r"[\[\]]", inside):
        raise _wrong(source, number, f"not a list: `{value[:60]}`; write [a, b]")
    items = tuple(item.strip() for item in inside.split(",")) if inside.strip() else ()
    if "" in items:
        raise _wrong(source, number, f"an empty item in `{value[:60]}`")
    return items


def _parse_relations(value: str, source: str, number: int) -> dict[str, tuple[str, ...]]:
    inside = value[1:-1]
    matches = list(_RELATION.finditer(inside))
    if (
        not (value.startswith("{") and value.endswith("}"))
        or not matches
        or "".join(m.group() for m in matches) != inside
    ):
        raise _wrong(
            source,
            number,
            f"not relations: `{value[:60]}`; write {{refines: [a], combines: [b, c]}}",
        )
    return {match.group(1): _parse_list(match.group(2), source, number) for match in matches}


def _headings(body: str) -> Iterator[str]:
    """Second-level headings outside code fences."""
    fence = ""
    for line in body.split("\n"):
        if mark := re.match(r"\s*(`{3,}|~{3,})", line):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence) and line.strip() == mark.group(1):
                fence = ""
        elif not fence and line.startswith("## "):
            yield line[3:].strip()


def _list(items: tuple[str, ...]) -> str:
    return f"[{', '.join(items)}]"


def _wrong(source: str, number: int, what: str) -> LibraryError:
    return LibraryError(f"{source}:{number}: {what}", _HINT)
