"""The data of a run: for which data the paper's numbers are shown, and what is recorded."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from equable.benchmark.config import load_config
from equable.benchmark.run_data import check_data, describe_data, keep_paper_name, load_data
from equable.benchmark.run_folder import start_run
from equable.datasets import DATASETS, digest_of
from equable.errors import ConfigError
from messages import raises_naming


def test_official_counts_are_those_of_the_papers_statistics():
    for source in DATASETS.values():
        assert {len(row) for row in source.counts.values()} == {source.classes}
        assert sum(map(sum, source.counts.values())) == source.samples


@pytest.mark.parametrize(
    "preset", ["cifar10", "cifar100-reduced", "tinyimagenet", "skinlesions64-rebuilt", "bloodcell"]
)
def test_data_of_the_official_size_stand_beside_the_paper(tmp_path, preset):
    path = tmp_path / "copy.npz"
    path.write_bytes(b"stands for the images")
    config = load_config(preset, data=str(path))
    source = {"skinlesions": "dermamnist_64", "bloodcell": "bloodmnist"}.get(config.paper, config.paper)
    counts = dict(DATASETS[source].counts)
    assert keep_paper_name(config, counts) == config
    assert describe_data(config) == {
        "name": "copy.npz",
        "digest": digest_of(path),
        "origin": f"unofficial copy of {source}",
    }
    first = next(iter(counts))
    counts[first] = (counts[first][0] + 1, *counts[first][1:])
    other = keep_paper_name(config, counts)
    assert (other.paper, other.name) == ("", "copy")
    assert describe_data(other)["origin"] == "own data"


def test_other_tasks_are_another_experiment():
    counts = DATASETS["cifar10"].counts
    for settings, paper in ((["scenario.tasks=2"], ""), (["training.max_epochs=3"], "cifar10")):
        config = keep_paper_name(load_config("cifar10", settings=settings), counts)
        assert (config.paper, config.name) == (paper, "CIFAR10")


def test_known_data_are_not_read_to_be_checked(monkeypatch):
    def read(*_, **__):
        raise AssertionError("the images were read")

    monkeypatch.setattr("equable.datasets.load_dataset", read)
    config = load_config("digits")
    assert check_data(config) == config


def test_a_known_dataset_of_vectors_takes_a_network_for_vectors(monkeypatch):
    vectors = replace(DATASETS["digits"], name="embedded", kind="vectors")
    monkeypatch.setitem(DATASETS, "embedded", vectors)
    settings = ["data.source=embedded", "network.name=mlp", "training.augmentation=none"]
    config = load_config("digits", settings=settings)
    assert check_data(config).network.name == "mlp"
    with pytest.raises(ConfigError, match=r"network\.name must be linear or mlp for vectors; got 'resnet32'"):
        check_data(load_config("digits", settings=[*settings, "network.name=resnet32"]))
    with pytest.raises(ConfigError, match=r"for images; got 'mlp'"):
        check_data(load_config("digits", settings=["network.name=mlp"]))


def test_official_files_are_described_by_their_md5():
    assert describe_data(load_config("cifar10")) == {
        "name": "cifar10",
        "digest": "md5:c58f30108f718f92721af3b95e74349a",
        "origin": "official",
    }


def test_a_zip_of_tinyimagenet_is_an_unofficial_copy_under_any_preset(tmp_path):
    (tmp_path / "tiny.zip").write_bytes(b"another checksum")
    config = load_config("digits", data=str(tmp_path / "tiny.zip"))
    assert describe_data(config)["origin"] == "unofficial copy of tinyimagenet"


def test_a_digest_covers_names_and_contents(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"one")
    (tmp_path / "a" / "2.png").write_bytes(b"two")
    found = {digest_of(tmp_path)}
    (tmp_path / "a" / "2.png").write_bytes(b"TWO")
    found.add(digest_of(tmp_path))
    (tmp_path / "a" / "2.png").rename(tmp_path / "a" / "3.png")
    found.add(digest_of(tmp_path))
    assert len(found) == 3
    assert digest_of(tmp_path / "a" / "1.png") == f"sha256:{hashlib.sha256(b'one').hexdigest()}"


def test_the_run_folder_keeps_the_description(tmp_path, tiny_config):
    data = {"name": "few.npz", "digest": "sha256:00", "origin": "own data"}
    start_run(tmp_path, tiny_config, data)
    start_run(tmp_path, tiny_config, data)
    stored = json.loads((tmp_path / "environment.json").read_text())
    assert (stored["data"], stored["also"]) == (data, [])
    start_run(tmp_path, tiny_config, {**data, "digest": "sha256:11"})
    stored = json.loads((tmp_path / "environment.json").read_text())
    assert [place["data"]["digest"] for place in stored["also"]] == ["sha256:11"]


def test_network_and_augmentation_must_suit_the_data(tmp_path):
    path = tmp_path / "v.npz"
    features = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(path, train_features=features, train_labels=np.arange(40) % 4)
    with raises_naming(ConfigError, "network.name must", "linear", "mlp", "vectors", "'resnet32'"):
        load_data(
            load_config("digits", data=str(path), settings=["scenario.tasks=2", "network.name=resnet32"])
        )
    with raises_naming(ConfigError, "network.name must", "slim_resnet18", "resnet32", "images"):
        load_data(load_config("digits", settings=["network.name=mlp"]))
    settings = ["scenario.tasks=2", "training.augmentation=flips", "network.name=mlp"]
    with raises_naming(ConfigError, "training.augmentation must", "none", "vectors", "'flips'"):
        load_data(load_config("digits", data=str(path), settings=settings))


def test_clinc150_is_as_agreed():
    config = load_config("clinc150", data="digits", settings=["scenario.tasks=5"])
    assert (config.network.name, config.network.hidden) == ("mlp", 128)
    training = config.training
    assert (training.memory_size, training.calibration_percent, training.batch_size) == (1500, 50.0, 64)
    assert (training.learner, config.scenario.order) == ("er", "random_tasks")
