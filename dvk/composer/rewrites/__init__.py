"""Exact rewrites of a captured graph, one module each; `recipes` is their table."""
