"""``python -m benchmarks.published``: see `benchmarks.published.publish`."""

from benchmarks.published.publish import main

if __name__ == "__main__":  # processes of its own import this file
    main()
