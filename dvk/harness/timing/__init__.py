"""How fast is a candidate: paired timing, overhead, baselines, claims, rooflines."""
