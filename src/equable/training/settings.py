"""The settings of training and the tables of networks and learners, without torch.

A setting is one field of `TrainingSettings`: command line, presets and run folders read it from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equable.errors import ConfigError
from equable.training.learners import LEARNERS as LEARNERS

Augmentation = Literal["none", "flips", "flip_crop"]

# name → (pixels of padding before a random crop, horizontal flip, vertical flip)
AUGMENTATIONS: dict[Augmentation, tuple[int, bool, bool]] = {
    "none": (0, False, False),
    "flips": (0, True, True),
    "flip_crop": (4, True, False),
}


class Network(NamedTuple):
    """A row of the table of networks."""

    class_name: str  # in equable.training.networks, and in tables
    size: str = ""  # its size in the settings: "nf", "hidden", or none
    data: str = "images"  # or "vectors"


#: A network is a class of `equable.training.networks` and a row of this table.
NETWORK_TABLE = {
    "slim_resnet18": Network("SlimResNet18", size="nf"),
    "resnet32": Network("ResNet32"),
    "linear": Network("Linear", data="vectors"),
    "mlp": Network("MLP", size="hidden", data="vectors"),
}

if TYPE_CHECKING:
    NetworkName = str
    LearnerName = str
else:
    NetworkName = Literal[tuple(NETWORK_TABLE)]
    LearnerName = Literal[tuple(LEARNERS)]

Count = Annotated[int, Field(ge=1)]
#: Settings that change the last bits only: a run may continue on another machine with others.
MACHINE_SETTINGS = ("device", "threads")


class TrainingSettings(BaseModel):
    """Name, rule and default of each training setting; `ReplaySettings` explains them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    learner: LearnerName = "er"
    # Batch norm learns nothing from one row, and batches of the first task have no replayed rows.
    batch_size: Annotated[int, Field(ge=2)] = 64
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_epochs: Count = 50
    patience: Count = 10
    early_stopping: Literal["balanced", "current"] = "balanced"
    settle_batch_norm: bool = True
    augmentation: Augmentation = "none"
    memory_size: Count = 200
    calibration_percent: Annotated[float, Field(gt=0, le=100)] = 50.0
    precision: Literal["float32", "bfloat16"] = "float32"
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0  # torch crashes with very many


class ReplaySettings(TrainingSettings):
    """Settings of class-incremental training; a bad value is a `ConfigError`.

    Parameters
    ----------
    learner
        Name in `equable.training.learners.LEARNERS`: "er" is experience replay, "derpp" DER++.
    batch_size
        b; each step uses b rows of the current task and, from the second task on, b rows of
        the replay memory (DER++: twice b).
    learning_rate, momentum, weight_decay
        Of SGD, whose state is new for each task.
    max_epochs, patience
        A task ends after `max_epochs`, or `patience` epochs without a better score.
    early_stopping
        Which epoch's weights a task keeps, see `equable.training.train_task`: the best accuracy
        "balanced" over all seen classes, or of the "current" task alone.
    settle_batch_norm
        After each epoch, replace batch norm's running statistics by their means over ten
        batches with the weights fixed.
    augmentation
        "none", "flips" (both axes) or "flip_crop" (horizontal flip, padded random crop); of images.
    memory_size
        `|M|`, rows of the replay memory.
    calibration_percent
        p, the share of each task's validation rows that enters the calibration buffer.
    precision
        Of the training steps: "float32", or "bfloat16" for mixed precision (`torch.autocast`), faster on
        processors that support it. Weights, batch norm's statistics and all stored outputs are float32.
    device
        "cpu", "cuda" or "mps".
    threads
        CPU threads; 0 or None leaves the choice to torch. Another number changes the last bits.

    Examples
    --------
    >>> from equable.training import ReplaySettings
    >>> ReplaySettings(batch_size=32, max_epochs=8).memory_size
    200
    """

    def __init__(self, **values: Any) -> None:
        if values.get("threads", 0) is None:
            values["threads"] = 0
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            rule = first["msg"].removeprefix("Input should ")
            raise ConfigError(f"{name} must {rule}; got {first['input']!r}") from None
