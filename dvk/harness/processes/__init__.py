"""Entry points of the judge's child processes, and modules that run only inside them. Imported by name."""
