"""Adapters to other libraries; each needs its own optional dependency."""
