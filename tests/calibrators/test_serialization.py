"""Calibrator files: damaged, forged, foreign and newer files are refused; saving loses nothing."""

import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import equable
from equable.calibrators.serialization import _digest
from equable.errors import FileFormatError


def fit(calibrator, data):
    return calibrator.fit(data.logits, data.y, features=data.features, tasks=data.tasks)


@pytest.fixture
def saved(incremental, tmp_path):
    path = tmp_path / "cal.safetensors"
    fit(equable.DATS(), incremental).save(path)
    return path


def test_every_changed_byte_is_noticed(saved):
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(damaged))
        with pytest.raises(FileFormatError):
            equable.load(saved)


def test_equal_content_gives_equal_bytes(saved, tmp_path):
    for turn in range(8):
        equable.load(saved).save(tmp_path / f"{turn}")
        assert (tmp_path / f"{turn}").read_bytes() == saved.read_bytes()


def test_infinite_odds_are_strict_json(saved, incremental):
    cal = fit(equable.TaskMix(odds=np.inf, base=equable.BiasCorrection(by="class")), incremental)
    cal.save(saved)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    with safe_open(saved, framework="np") as file:
        json.loads(file.metadata()["calibrator"], parse_constant=refuse)
    again = equable.load(saved)
    assert again.odds == np.inf
    assert again.base.by == "class"


def test_truncated(saved):
    whole = saved.read_bytes()
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="damaged or foreign"):
            equable.load(saved)


def test_foreign(saved):
    save_file({"x": np.ones(3)}, saved)
    with pytest.raises(FileFormatError, match="another safetensors file"):
        equable.load(saved)


def test_newer(saved):
    save_file({}, saved, metadata={"format": "equable-calibrator", "schema": "2"})
    with pytest.raises(FileFormatError, match="schema '2'; this equable reads up to 1"):
        equable.load(saved)


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        equable.load(tmp_path / "none")


@pytest.mark.parametrize("load", [equable.load, equable.Stream.load])
def test_a_folder_is_the_systems_own_error(load, tmp_path):
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_so_is_a_file_that_may_not_be_read(saved):
    saved.chmod(0)
    with pytest.raises(PermissionError):
        equable.load(saved)


def test_shapes_that_do_not_fit_together(saved):
    with safe_open(saved, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["distance_weights_"] = np.ones(4)
    metadata["sha256"] = _digest(metadata["calibrator"], tensors)
    save_file(tensors, saved, metadata=metadata)
    with pytest.raises(FileFormatError, match=r"distance_weights_ .*9.*got \(4,\)"):
        equable.load(saved)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scalars", "n_classes_"), float("inf")),
        (("scalars", "n_classes_"), -1),
        (("scalars", "base_temperature_"), float("nan")),
        (("scalars", "base_temperature_"), -3.0),
        (("scalars", "base_temperature_"), "7"),
        (("settings",), [1]),
        (("settings", "coverage"), 7),
        (("class",), "nobody"),
        (("class",), "ets"),
    ],
)
def test_forged_headers_are_refused(saved, path, value):
    with safe_open(saved, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(metadata["calibrator"])
    inner = header
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    metadata["calibrator"] = json.dumps(header)
    metadata["sha256"] = _digest(metadata["calibrator"], tensors)
    save_file(tensors, saved, metadata=metadata)
    with pytest.raises(FileFormatError):
        equable.load(saved)


def test_numpy_settings_are_saved_as_plain_numbers(incremental, tmp_path):
    cal = fit(equable.DATS(coverage=np.float32(0.5)), incremental)
    cal.save(tmp_path / "cal.safetensors")
    assert equable.load(tmp_path / "cal.safetensors").coverage == 0.5


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
@pytest.mark.parametrize("kind", [equable.ARC, equable.DATS])
def test_narrow_numpy_settings_mean_what_plain_ones_mean(kind, dtype, incremental, tmp_path):
    """An int8 cannot hold the number 5,000, and a float16 cannot hold 5,003."""
    many = np.arange(5000) % len(incremental.y)
    narrow, plain = (fit(kind(prior_strength=strength), incremental) for strength in (dtype(3), 3.0))
    narrow.save(tmp_path / "narrow.safetensors")
    found = [
        cal.predict_proba(incremental.logits[many], features=incremental.features[many])
        for cal in (narrow, equable.load(tmp_path / "narrow.safetensors"), plain)
    ]
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])


def test_a_failed_write_keeps_the_old_file(saved, incremental, monkeypatch):
    before = saved.read_bytes()

    def full(*_args):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        fit(equable.TemperatureScaling(), incremental).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
