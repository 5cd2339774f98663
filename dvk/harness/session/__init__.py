"""The parent's side of the judge: one session per task, verdicts, caches, sizing. Imports no torch."""
