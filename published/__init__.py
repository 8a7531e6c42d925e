"""Published results: stored outputs of the final step of real runs, and all that is computed from them.

``python -m published.store RUN NAME`` keeps a finished run in ``results/NAME``;
``make results`` computes every table and figure of ``docs/results`` from there.
"""
