"""Statistics without torch: Student's t, intervals, effect sizes, fast_p."""
