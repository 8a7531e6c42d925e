"""Fixtures of the tiny run."""

from run_fixtures import (  # noqa: F401
    blank_figures,
    finished_run,
    made_once,
    shared,
    tiny_config,
    tiny_run,
)
