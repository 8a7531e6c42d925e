"""Calibrators on files: fit, apply and evaluate stored outputs, without training code."""
