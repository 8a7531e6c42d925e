"""Every error and warning that equable raises on purpose.

A message names the culprit, the rule and the value: ``coverage must be in (0, 1]; got 1.4``.
"""


class EquableError(Exception):
    """Base of all errors below: catch it to catch whatever equable refuses."""


class InputError(EquableError, ValueError):
    """An array or a setting breaks a rule; nothing was changed."""


class NotFittedError(EquableError, ValueError, AttributeError):
    """A calibrator was used before ``fit``."""


class UnsupportedError(EquableError, NotImplementedError):
    """The method cannot do what was asked, by its nature (ETS has no single temperature)."""


class FileFormatError(EquableError, ValueError):
    """A file is damaged, foreign, or of a newer version than this equable reads."""


class ConfigError(EquableError, ValueError):
    """A run's settings are unknown, impossible, or differ from those the run was started with."""


class LockedError(EquableError):
    """Another run works in the folder, or took it over."""


class ClusterError(EquableError, ConnectionError):
    """The scheduler cannot be reached or went away; the same command resumes."""


class DataError(EquableError, OSError):
    """A dataset is missing, cannot be fetched, or is not the file it should be."""


class MethodError(EquableError, RuntimeError):
    """A calibrator of the user's own raised an error; the message has its name and what it said."""


class MissingExtraError(EquableError, ImportError):
    """A part of equable needs an optional dependency that is not installed."""


class EquableWarning(UserWarning):
    """Base of all warnings below."""


class ConvergenceWarning(EquableWarning):
    """A fit ended at a bound or before it converged; the result is usable but look at it."""


class EvidenceWarning(EquableWarning):
    """A number rests on very few rows."""


class ShiftWarning(EquableWarning):
    """A batch's logits differ from the calibration buffer's in a way that the method rules out."""
