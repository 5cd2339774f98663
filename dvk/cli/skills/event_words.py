"""One-line descriptions of events in a skill's history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvk.skills.events import Event


def in_words(event: Event) -> str:
    """Describe an event's data in one line."""
    data, parts = event.data, []
    if event.kind == "merged":
        parts.append(f"into {data.get('into', '?')}")
    if event.kind == "given":
        parts += _played(data)
    if event.kind == "changed" and "was" in data and "skill" in data:
        fields = [key for key in data["skill"] if data["skill"][key] != data["was"].get(key)]
        parts.append(", ".join(fields))
    if data.get("why"):
        parts.append(str(data["why"]))
    return "; ".join(parts)


def _played(data: Any) -> list[str]:
    role = data.get("role", "policy")
    parts = [f"{role}, task {data.get('task', '?')}"]
    if role == "selection":
        parts.append(f"chosen {data.get('chosen', 0)} of {data.get('offered', 0)} times")
    if data.get("gain") is not None:
        parts.append(f"gain {data['gain']:+.3f}")
    if data.get("won"):
        parts.append("won")
    if data.get("together"):
        parts.append(f"with {', '.join(data['together'])}")
    return parts
