"""``python -m equable.cli``."""

from equable.cli import main

if __name__ == "__main__":
    main()
