"""Analyses of a kernel before it is written: one-pass forms, tiles, the kind of its work."""
