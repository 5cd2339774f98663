"""`dvk sft`: the cold start of the three agents, in four stages that each read and write a folder of one run.

collect     tasks, the composer's texts for them, a sample of these executed; episodes     → collect/, gate/, episodes/
filter      only right and fast examples, none of a suite                                  → filter/
diversify   no duplicates, no dominating kind or skill                                     → diversify/
fit         the model                                                                      → fit/, checkpoints/
"""
