"""Triton candidates: timed on a GPU, run in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping


class Triton:
    """On a CPU it is checked, never timed."""

    def unavailable(self) -> tuple[str, str] | None:
        """(what is missing, what to do), or None."""
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed", "pip install triton (GPU builds of torch bring the one they need)"
        return None

    def env(self, device: str) -> Mapping[str, str]:
        # Triton reads this when it is imported, so interpreted candidates have workers of their own.
        return {} if device == "cuda" else {"TRITON_INTERPRET": "1"}

    def untimed(self, device: str) -> str | None:
        return None if device == "cuda" else "Triton ran in its interpreter: checked, not timed"
