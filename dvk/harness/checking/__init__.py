"""Correctness of results: inputs, references, tolerances, comparison."""
