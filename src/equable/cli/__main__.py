"""``python -m equable.cli``."""

from equable.cli import main

main()
