"""The decoder: sampling with one seed for each row, whatever the batch."""
