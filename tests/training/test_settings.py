"""Settings are refused when they are made, with name, rule and value; torch is not needed for them."""

import subprocess
import sys

import pytest

import equable.training
from equable.errors import ConfigError
from equable.training import NETWORKS, ReplaySettings
from equable.training.learners import LEARNERS, load_learner
from equable.training.networks import require_device
from equable.training.settings import NETWORK_TABLE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learner", "magic"),
        ("batch_size", 1),
        ("learning_rate", 0.0),
        ("momentum", 1.0),
        ("weight_decay", -1.0),
        ("max_epochs", 0),
        ("patience", 0),
        ("early_stopping", "best"),
        ("augmentation", "mixup"),
        ("settle_batch_norm", 1),
        ("precision", "float16"),
        ("memory_size", 0),
        ("calibration_percent", 0.0),
        ("calibration_percent", 100.5),
        ("device", "tpu"),
        ("threads", -1),
        ("threads", 100_000),
        ("threshold", 1),
    ],
)
def test_errors_name_setting_and_value(name, value):
    with pytest.raises(ConfigError, match=f"^{name} must .*; got {value!r}"):
        ReplaySettings(**{name: value})


def test_no_threads_means_torchs_own_choice():
    assert ReplaySettings(threads=None) == ReplaySettings() == ReplaySettings(threads=0)


def test_every_row_of_the_tables_has_its_class():
    assert {name: builder.__name__ for name, builder in NETWORKS.items()} == {
        name: row.class_name for name, row in NETWORK_TABLE.items()
    }
    for name in LEARNERS:
        assert callable(load_learner(name).loss)


def test_settings_need_no_torch():
    code = (
        "import sys, equable.benchmark.settings, equable.training.settings; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_device_that_torch_does_not_have(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    require_device("cpu")
    with pytest.raises(ConfigError, match=r"device must .* got 'cuda'"):
        require_device("cuda")


def test_an_unknown_name_of_the_package():
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        equable.training.train  # noqa: B018
