"""daVinci-kernel's checkpoints, prompts and data sets."""
