"""The parent's side of the judge: one session for each task, verdicts, caches, sizing. Imports no torch."""
