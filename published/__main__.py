"""``python -m published``: see `published.publish`."""

from published.publish import main

if __name__ == "__main__":  # subprocesses import this file
    main()
