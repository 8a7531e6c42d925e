"""Published results: pages that are computed from the stored outputs of the final step of real runs.

``python -m published.store RUN NAME`` stores a finished run in ``results/NAME``;
``make results`` computes every table and figure of ``docs/results`` from it.
"""
