"""The decoder: sampling with one seed for each row, independent of the batch."""
