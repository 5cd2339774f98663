"""Judges on other machines."""
