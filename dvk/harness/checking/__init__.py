"""Is a result correct: inputs, references, tolerances, comparison."""
