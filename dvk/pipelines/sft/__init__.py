"""`dvk sft`: the cold start of the three agents, in four stages that each read and write a folder of one run.

    collect     episodes that a teacher plays, and what they teach      → collect/
    filter      only what is right, fast enough and not in any suite    → diversify/ (with the next)
    diversify   no duplicates, no kind or skill that dominates          → diversify/
    fit         the model                                               → fit/, checkpoints/
"""
