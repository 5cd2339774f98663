"""What writers ask about a kernel before they write it: one-pass forms, tiles, the kind of its work."""
