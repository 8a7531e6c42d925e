"""Settings are refused when they are made, with name, rule and value."""

import pytest

from equable.errors import ConfigError
from equable.training import ReplaySettings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 0, "batch_size must be at least 2; got 0"),
        ("learning_rate", -0.1, "learning_rate must be above 0; got -0.1"),
        ("momentum", 1.0, "momentum must be in [0, 1); got 1.0"),
        ("weight_decay", -1, "weight_decay must be at least 0; got -1"),
        ("max_epochs", 0, "max_epochs must be at least 1; got 0"),
        ("patience", 0, "patience must be at least 1; got 0"),
        ("early_stopping", "best", "got 'best'"),
        ("augmentation", "mixup", "got 'mixup'"),
        ("calibration_percent", 0, "calibration_percent must be in (0, 100]; got 0"),
        ("device", "tpu", "got 'tpu'"),
        ("threads", 0, "threads must be None or 1 to 1024; got 0"),
        ("threads", 100_000, "threads must be None or 1 to 1024; got 100000"),
    ],
)
def test_errors(name, value, message):
    with pytest.raises(ConfigError) as caught:
        ReplaySettings(**{name: value})
    assert message in str(caught.value)
