"""Fixtures of the tiny run."""

from run_fixtures import finished_run, tiny_config, tiny_run  # noqa: F401
