"""Entry points of the judge's child processes, and what runs only inside them. Imported by name."""
