"""The errors and warnings of equable.

A message names the argument, the rule and the value: ``coverage must be in (0, 1]; got 1.4``.
"""

from __future__ import annotations

import errno
import importlib
from types import ModuleType


class EquableError(Exception):
    """Base of all errors below."""


class InputError(EquableError, ValueError):
    """An argument is invalid; nothing was changed."""


class NotFittedError(EquableError, ValueError, AttributeError):
    """A calibrator was used before ``fit``."""


class UnsupportedError(EquableError, NotImplementedError):
    """The method has no such result; ETS, for example, has no single temperature."""


class FileFormatError(EquableError, ValueError):
    """A file is damaged, foreign, or of a newer version than this equable reads."""


class ConfigError(EquableError, ValueError):
    """A setting of a run is unknown, impossible, or differs from the one the run was started with."""


class LockedError(EquableError):
    """Another process holds the lock of the run folder."""


class ClusterError(EquableError, ConnectionError):
    """The Dask scheduler cannot be reached or has stopped; the same command resumes the run."""


class DataError(EquableError, OSError):
    """A dataset is missing, cannot be downloaded, or is not the expected file."""


class MethodError(EquableError, RuntimeError):
    """A user's own calibrator raised an error; the message has its name and the original message."""


class MissingExtraError(EquableError, ImportError):
    """A part of equable needs an optional dependency that is not installed."""


class EquableWarning(UserWarning):
    """Base of all warnings below."""


class ConvergenceWarning(EquableWarning):
    """A fit ended at a bound or before it converged; the result is usable but needs a check."""


class EvidenceWarning(EquableWarning):
    """A number is based on very few rows."""


class ShiftWarning(EquableWarning):
    """The logits of a batch differ from those of the calibration buffer more than label shift explains."""


def require_package(module: str, purpose: str) -> ModuleType:
    """Import an optional module of the extra ``train``, or name the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "Pillow"}.get(module.split(".")[0], module)
        raise MissingExtraError(
            f"{purpose} needs {package}; install it with: pip install 'equable[train]'"
        ) from error


#: errno → what the user can do.
_ADVICE = {
    errno.ENOSPC: "Free space there and repeat the command",
    errno.EDQUOT: "Free space there and repeat the command",
    errno.EROFS: "Give a folder that can be written",
    errno.EACCES: "Give a file or folder that this user may use",
}


def os_error_text(error: OSError) -> str:
    """The message of an error of the operating system, with what the user can do about it.

    Examples
    --------
    >>> print(os_error_text(OSError(28, "No space left on device", "run/test.npz")))
    [Errno 28] No space left on device: 'run/test.npz'. Free space there and repeat the command
    """
    advice = _ADVICE.get(error.errno or 0)
    return f"{error}. {advice}" if advice else str(error)
