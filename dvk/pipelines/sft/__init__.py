"""`dvk sft`: the cold start of the three agents, in four stages that each read and write a folder of one run.

    collect     tasks, the composer's texts for them, a sample of these executed; episodes     → collect/, gate/, episodes/
    filter      only what is right, fast enough and not in any suite                           → filter/
    diversify   no duplicates, no kind or skill that dominates                                 → diversify/
    fit         the model                                                                      → fit/, checkpoints/
"""
