"""What all records have in common: they are frozen, and refuse unknown fields."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen fact that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def content_hash(*parts: str) -> str:
    """Sixteen hex digits that identify `parts`; order matters."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()[:16]
