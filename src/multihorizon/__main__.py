"""`python -m multihorizon`."""

from multihorizon.cli import main

main()
