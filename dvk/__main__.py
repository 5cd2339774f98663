"""`python -m dvk`."""

from dvk.cli import main

main()
