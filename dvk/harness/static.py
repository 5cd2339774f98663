"""What can be told from a candidate's text alone: which back end it wants, and whether it can run at all.

Nothing here is a safety check: text is no place to look for cheating.
"""

from __future__ import annotations

import ast

from dvk.records import Backend, Candidate, Status, Tier, Verdict


def refuse(candidate: Candidate, tier: Tier) -> Verdict | None:
    """A verdict for text that cannot be a candidate; None for the rest."""
    try:
        tree = ast.parse(candidate.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        return Verdict(status=Status.REJECTED, tier=tier, stage="static", error=f"not Python: {message}{line}")
    names = {target for node in ast.walk(tree) for target in _bound(node)}
    if "ModelNew" not in names and not any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in ast.walk(tree)):
        return Verdict(status=Status.REJECTED, tier=tier, stage="static", error="the candidate defines no `ModelNew`")
    return None


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name for a in node.names]
    return []


def backend_of(source: str) -> Backend:
    """The back end a candidate's text uses: Triton when it imports it, CUDA when it builds CUDA sources, else C++."""
    if "import triton" in source or "from triton" in source:
        return "triton"
    if "cuda_sources" in source or "load_inline" in source and "__global__" in source:
        return "cuda"
    return "cpp"
