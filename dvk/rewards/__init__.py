"""What verdicts are worth: the field's scores of a policy over many tasks. Importing it loads no torch."""
