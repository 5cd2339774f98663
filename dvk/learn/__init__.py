"""Training: rows of tokens, packs, losses, one optimizer step; and its training data.

`rows` holds the training tokens and their weights, `packs` lays rows out for a device, `scoring`
gives their log-probabilities, `loss` turns those into one number, `learner` makes a step and keeps its
state. SFT is the same step as REINFORCE with advantage 1. Importing this package loads no torch.
"""
