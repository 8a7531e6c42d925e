"""Settings: every preset holds the paper's values, and impossible values are refused."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from equable.benchmark.config import check_classes, load_config, parse_seeds, read_config
from equable.benchmark.run_data import scenario_of
from equable.benchmark.settings import flatten
from equable.benchmark.settings_layers import PRESETS, default_layer, read_preset
from equable.datasets import DATASETS
from equable.errors import ConfigError
from equable.reports import paper
from equable.training.settings import NETWORK_TABLE
from messages import assert_words, raises_naming

MEDICAL = ("bloodcell", "skinlesions")
#: Preset → the preset of the paper that it starts from, and the settings that it changes.
REDUCED = {
    "cifar10-reduced": ("cifar10", {"training.max_epochs": 7, "training.precision": "bfloat16"}),
    "cifar100-reduced": (
        "cifar100",
        {"training.max_epochs": 10, "training.precision": "bfloat16", "network.nf": 16},
    ),
    "tinyimagenet-reduced": (
        "tinyimagenet",
        {
            "training.max_epochs": 8,
            "training.patience": 5,
            "training.precision": "bfloat16",
            "network.nf": 20,
            "data.image_size": 32,
        },
    ),
    "skinlesions64-rebuilt": ("skinlesions", {"training.max_epochs": 20, "network.nf": 20}),
}
REBUILT = {"bloodcell-rebuilt": "BloodCell (rebuilt)", "skinlesions-rebuilt": "SkinLesions (rebuilt)"}


@pytest.mark.parametrize("preset", paper.SETTINGS)
def test_presets_hold_the_papers_values(preset):
    config = load_config(preset)
    printed = paper.SETTINGS[preset]
    tasks = config.scenario.tasks
    source = DATASETS[config.data.source]
    assert (source.classes, source.samples, source.image_size) == (
        printed["classes"],
        printed["samples"],
        printed["pixels"],
    )
    assert (tasks if isinstance(tasks, int) else len(tasks)) == printed["tasks"]
    assert config.network.name == "slim_resnet18"
    assert config.network.nf == printed["features"]
    assert config.training.memory_size == printed["memory_size"]
    assert config.training.patience == printed["patience"]
    assert config.training.calibration_percent == printed["inclusion"]
    assert config.training.learning_rate == 0.1
    assert config.seeds == [0, 1, 2]
    assert config.paper == preset
    assert config.training.early_stopping == "current"
    assert (config.training.momentum, config.training.weight_decay) == (0.0, 0.0)
    assert config.training.augmentation == ("flips" if preset in MEDICAL else "flip_crop")
    assert config.score.n_bins == 10
    medical = preset in MEDICAL
    assert config.scenario.order == ("size" if medical else "random")


@pytest.mark.parametrize(
    ("preset", "training_rows", "tasks"),
    [
        ("skinlesions", [228, 359, 769, 80, 779, 4693, 99], [{5, 4, 2}, {1, 0}, {6, 3}]),
        ("bloodcell", [852, 2181, 1085, 2026, 849, 993, 2330, 1643], [{6, 1}, {3, 7}, {2, 5}, {0, 4}]),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_medical_classes_come_by_their_training_rows(preset, training_rows, tasks, seed):
    """Classes are sorted by training rows; each has 5000 rows in total, so totals give no order."""
    n_classes = len(training_rows)
    split = np.concatenate([[0] * n + [1] * 10 + [2] * (4990 - n) for n in training_rows])
    data = SimpleNamespace(name=preset, labels=np.repeat(np.arange(n_classes), 5000), split=split)
    scenario = scenario_of(load_config(preset), data, seed)
    assert [{scenario.order[c] for c in task.classes} for task in scenario] == tasks
    rows = [sum(training_rows[c] for c in classes) for classes in tasks]
    assert [len(task.train) for task in scenario] == rows


def test_tinyimagenet_has_a_calibration_buffer_of_the_memorys_size():
    config = load_config("tinyimagenet")
    assert config.scenario.fractions == [0.85, 0.05, 0.1]
    buffer = 100_000 * config.scenario.fractions[1] * config.training.calibration_percent / 100
    assert buffer == config.training.memory_size == 1000


@pytest.mark.parametrize("preset", REDUCED)
def test_reduced_presets_change_what_they_say_and_nothing_else(preset, tmp_path):
    base, changed = REDUCED[preset]
    (tmp_path / "skin.npz").touch()
    data = str(tmp_path / "skin.npz") if "rebuilt" in preset else None
    reduced = load_config(preset, data=data).flat()
    whole = load_config(base).flat()
    apart = {key: value for key, value in reduced.items() if value != whole[key]}
    assert apart.pop("name") != whole["name"]
    apart.pop("data.source", None)
    assert apart == changed
    assert reduced["paper"] == base


@pytest.mark.parametrize("preset", REBUILT)
def test_rebuilt_presets_take_their_data_by_path(preset, tmp_path):
    with raises_naming(ConfigError, preset, "data.source must", "--data"):
        load_config(preset)
    data = tmp_path / "images.npz"
    data.touch()
    config = load_config(preset, data=str(data))
    assert (config.name, config.paper, config.network.nf) == (REBUILT[preset], "", 20)
    assert config.data.source == str(data)


def test_presets_are_small_differences_from_a_complete_default():
    known = set(default_layer().values)
    assert known == set(load_config("digits").flat())
    folder = Path(__file__).parents[2] / "src" / "equable" / "benchmark" / "presets"
    assert {path.stem for path in folder.glob("*.toml")} == {"default", *PRESETS}
    for preset in PRESETS:
        assert set(flatten(read_preset(preset))) < known


def test_digits_put_all_validation_rows_into_the_calibration_buffer():
    assert load_config("digits").training.calibration_percent == 100


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"settings": ["training.learning=1"]}, ["--set: unknown key training.learning"]),
        ({"settings": ["training.batchsize=1"]}, ["did you mean training.batch_size?"]),
        ({"settings": ["colour=1"]}, ["--set: unknown key colour"]),
        ({"settings": ["data=1"]}, ["--set: unknown key data"]),
        ({"settings": ["name.x=1"]}, ["--set: unknown key name.x"]),
        ({"settings": ["training.batch_size=0"]}, ["--set", "training.batch_size must", "to 2", "got 0"]),
        ({"settings": ["training.batch_size=true"]}, ["training.batch_size must", "integer", "got True"]),
        ({"settings": ["training.batch_size=1.5"]}, ["training.batch_size must", "integer"]),
        (
            {"settings": ["training.calibration_percent=0"]},
            ["calibration_percent must", "greater than 0"],
        ),
        ({"settings": ["training.momentum=nan"]}, ["training.momentum must", "finite"]),
        ({"settings": ["network.name=vgg"]}, ["--set", "network.name must", "'slim_resnet18'", "'resnet32'"]),
        ({"settings": ["scenario.tasks=3"]}, ["scenario.tasks must", "10 classes evenly", "got 3"]),
        ({"settings": ["scenario.tasks=10"]}, ["give the first task at least two classes"]),
        ({"settings": ["scenario.tasks=[5, 4]"]}, ["scenario.tasks must", "add up to 10"]),
        (
            {"settings": ["scenario.tasks=[10, 0]"]},
            ["scenario.tasks must", "to 1", "got 0"],
        ),
        ({"settings": ["nmae=x"]}, ["--set", "unknown key nmae", "did you mean name?"]),
        ({"settings": ["training.threads=100000"]}, ["training.threads must", "1024"]),
        ({"settings": ["network.nf=100000000"]}, ["network.nf must", "1024"]),
        ({"settings": ["score.n_bins=1000000000000"]}, ["score.n_bins must", "10000"]),
        ({"settings": ["scenario.order=[0, 1]"]}, ["scenario.order must", "0 … 9", "once"]),
        ({"settings": ["scenario.order=weekday"]}, ["scenario.order"]),
        ({"settings": ["scenario.fractions=[0.5, 0.5, 0.5]"]}, ["scenario.fractions must", "sum to 1"]),
        ({"settings": ["scenario.fractions=[0.5, 0.5]"]}, ["scenario.fractions"]),
        ({"settings": ["training.memory_size=9"]}, ["training.memory_size must", "10"]),
        ({"settings": ["score.n_bootstrap=-1"]}, ["score.n_bootstrap"]),
        ({"settings": ["seeds=[]"]}, ["--set: seeds must"]),
        ({"settings": ["seeds=[1, 1]"]}, ["--set", "seeds must", "distinct"]),
        ({"settings": ["seeds=[-1]"]}, ["--set", "seeds must", "to 0", "got -1"]),
        ({"settings": ["seeds=[4294967296]"]}, ["--set", "seeds must", "4294967296"]),
        ({"settings": ["training.batch_size"]}, ["--set must", "key=value"]),
        ({"settings": ["scenario.order=[1,"]}, ["--set scenario.order must", "TOML"]),
        ({"seeds": "0,0"}, ["--seeds", "seeds must", "distinct"]),
        ({"seeds": "-1"}, ["--seeds must", "0-9", "got '-1'"]),
        ({"seeds": "3-1"}, ["a range from low to high"]),
        ({"seeds": "a"}, ["--seeds must be like"]),
        ({"seeds": "0-99999999999"}, ["--seeds must", "1000", "got '0-99999999999'"]),
        ({"seeds": "0-999,1000"}, ["--seeds must", "1000"]),
        ({"seeds": "9" * 5000}, ["--seeds must be like"]),
        ({"data": "nowhere.npz"}, ["--data", "data.source must", "existing file"]),
        ({"data": "~no-such-user/x"}, ["--data must", "path", "'~no-such-user/x'"]),
        ({"settings": ["data.source=~no-such-user/x"]}, ["--set", "data.source must", "path", "'~no-such"]),
        ({"settings": ["data.data_dir=~no-such-user"]}, ["--set", "data.data_dir must", "path", "'~no-such"]),
    ],
)
def test_impossible_settings_are_refused_with_key_and_place(words, named):
    with pytest.raises(ConfigError) as caught:
        load_config("digits", **words)
    assert_words(str(caught.value), *named)
    assert "\n" not in str(caught.value)


def test_a_file_is_named_with_its_bad_key(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[training]\nbatch_size = 'many'\n")
    with raises_naming(ConfigError, "mine.toml", "training.batch_size must", "integer", "'many'"):
        load_config(str(path))
    path.write_text("[training\n")
    with pytest.raises(ConfigError, match=r"mine\.toml must be TOML"):
        load_config(str(path))
    with raises_naming(ConfigError, "absent.toml must", "TOML"):
        load_config(str(tmp_path / "absent.toml"))
    with raises_naming(ConfigError, "~no-such-user/x.toml must", "TOML"):
        load_config("~no-such-user/x.toml")
    with pytest.raises(ConfigError, match="did you mean cifar10"):
        load_config("cifar-10")


def test_own_data_by_file_and_by_preset(tmp_path):
    (tmp_path / "scans.npz").touch()
    path = tmp_path / "hospital.toml"
    path.write_text('[data]\nsource = "scans.npz"\n[scenario]\ntasks = [2, 2]\n')
    config = load_config(str(path))  # a path in a settings file is relative to that file
    assert (config.name, config.data.source) == ("hospital", str(tmp_path / "scans.npz"))
    with raises_naming(ConfigError, "scenario.tasks must", "5 classes"):
        check_classes(config, 5)
    changed = load_config("digits", data=str(tmp_path / "scans.npz"))
    assert changed.name == "scans"


def test_later_words_win():
    config = load_config("digits", seeds="4-5", settings=["network.nf=3", "network.nf=4"])
    assert (config.network.nf, config.seeds) == (4, [4, 5])


def test_seeds():
    assert parse_seeds("0, 2-4") == [0, 2, 3, 4]


def test_config_toml_reads_back_as_it_was(tmp_path):
    odd = 'a "quoted" \\ name\tçø \x7f'
    config = load_config("skinlesions", settings=["training.learning_rate=1e-05"])
    config = config.model_copy(update={"name": odd})
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    again = read_config(path)
    assert again == config
    assert again.to_toml() == config.to_toml()


def test_every_network_can_be_chosen():
    for name in NETWORK_TABLE:
        assert load_config("digits", settings=[f"network.name={name}"]).network.name == name


def test_a_run_of_before_there_were_learners_is_experience_replay(tmp_path):
    """Its config.toml does not name the learner."""
    config = load_config("digits")
    text = config.to_toml().replace('learner = "er"\n', "")
    assert text != config.to_toml()
    (tmp_path / "config.toml").write_text(text)
    assert read_config(tmp_path / "config.toml") == config
    with raises_naming(ConfigError, "training.learner must", "'er'", "'derpp'", "'magic'"):
        load_config("digits", settings=["training.learner=magic"])
