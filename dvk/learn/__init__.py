"""What changes the model: rows of tokens, packs, losses, one optimizer step; and what it learns from.

`rows` says what is learned and how much each part counts, `packs` lays rows out for a device, `scoring`
gives their log-probabilities, `loss` turns those into one number, `learner` makes a step and keeps its
state. SFT is the same step as REINFORCE with advantage 1. Importing this package loads no torch.
"""
