"""What can be chosen about replay training, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from equable.errors import ConfigError

Augmentation = Literal["none", "flips", "flip_crop"]
EarlyStopping = Literal["balanced", "current"]

# name → (pixels of padding before a random crop, horizontal flip, vertical flip)
AUGMENTATIONS: dict[str, tuple[int, bool, bool]] = {
    "none": (0, False, False),
    "flips": (0, True, True),
    "flip_crop": (4, True, False),
}
EARLY_STOPPING: tuple[str, ...] = ("balanced", "current")
DEVICES: tuple[str, ...] = ("cpu", "cuda", "mps")
MAX_THREADS = 1024  # torch crashes with very many


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of class-incremental training with experience replay.

    Parameters
    ----------
    batch_size
        b; each step sees b rows of the current task and, from the second task on, b rows of
        the replay memory.
    learning_rate, momentum, weight_decay
        Of SGD, whose state is new for each task.
    max_epochs, patience
        A task ends after `max_epochs`, or `patience` epochs without a better score.
    early_stopping
        Which epoch's weights a task keeps, see `equable.training.train_task`.
    settle_batch_norm
        After each epoch, replace batch norm's running statistics by their means over ten
        batches with the weights fixed.
    augmentation
        "none", "flips" (both axes) or "flip_crop" (horizontal flip, padded random crop).
    memory_size
        `|M|`, rows of the replay memory.
    calibration_percent
        p, the share of each task's validation rows that enters the calibration buffer.
    device
        "cpu", "cuda" or "mps".
    threads
        CPU threads; None leaves torch's own choice. Other threads, other last bits.

    Examples
    --------
    >>> from equable.training import ReplaySettings
    >>> ReplaySettings(batch_size=32, max_epochs=8).memory_size
    200
    """

    batch_size: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    max_epochs: int = 50
    patience: int = 10
    early_stopping: EarlyStopping = "balanced"
    settle_batch_norm: bool = True
    augmentation: Augmentation = "none"
    memory_size: int = 200
    calibration_percent: float = 50.0
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        # of one row batch norm learns nothing, and the first task's batches have no replayed ones
        _require(self.batch_size >= 2, "batch_size", "at least 2", self.batch_size)
        for name in ("max_epochs", "patience", "memory_size"):
            _require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        _require(self.learning_rate > 0, "learning_rate", "above 0", self.learning_rate)
        _require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)
        _require(self.weight_decay >= 0, "weight_decay", "at least 0", self.weight_decay)
        percent = self.calibration_percent
        _require(0 < percent <= 100, "calibration_percent", "in (0, 100]", percent)
        for name, known in (
            ("early_stopping", EARLY_STOPPING),
            ("augmentation", tuple(AUGMENTATIONS)),
            ("device", DEVICES),
        ):
            _require(getattr(self, name) in known, name, f"one of {known}", getattr(self, name))
        settle = self.settle_batch_norm
        _require(isinstance(settle, bool), "settle_batch_norm", "true or false", settle)
        few = self.threads is None or 1 <= self.threads <= MAX_THREADS
        _require(few, "threads", f"None or 1 to {MAX_THREADS}", self.threads)


def require_device(device: str) -> None:
    """Raise unless torch can use the device on this machine."""
    import torch

    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    _require(available.get(device, False), "device", "one that torch can use on this machine", device)


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{name} must be {rule}; got {value!r}")
