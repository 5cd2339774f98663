"""One file a command: straight code that reads as the story of that command."""
