"""Timing of candidates: paired timing, overhead, baselines, claims, rooflines."""
