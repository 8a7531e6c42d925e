"""Checkpoint files: tensors are read back unchanged, and other files are refused."""

import errno
import pickle
import resource

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equable.errors import EquableError, FileFormatError
from equable.training.checkpoint import add_prefix, load_tensors, load_weights, save_tensors, with_prefix
from equable.training.networks import SlimResNet18
from fuzz.hostile import damaged, lying_safetensors
from messages import raises_naming


def test_round_trip_keeps_every_bit_and_the_facts(tmp_path):
    network = SlimResNet18(4, (8, 8, 1), nf=2).to(memory_format=torch.channels_last)
    save_tensors(
        tmp_path / "a.safetensors", add_prefix("network", network.state_dict()), {"epoch": 3, "loss": 0.1}
    )
    tensors, facts = load_tensors(tmp_path / "a.safetensors")
    assert facts == {"epoch": 3, "loss": 0.1}
    other = SlimResNet18(4, (8, 8, 1), nf=2).to(memory_format=torch.channels_last)
    load_weights(other, with_prefix("network", tensors), "a.safetensors")
    for name, value in other.state_dict().items():
        assert torch.equal(value, network.state_dict()[name])
    assert other.stem.weight.stride() == network.stem.weight.stride()
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("content", [b"", b"no tensors", pickle.dumps({"a": 1})])
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with raises_naming(FileFormatError, "bad.safetensors must", "equable's training"):
        load_tensors(tmp_path / "bad.safetensors")


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "cut.safetensors"
    save_tensors(path, {"x": torch.ones(100)}, {})
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(FileFormatError, match="damaged"):
        load_tensors(path)


def test_weights_of_another_network_are_refused():
    network = SlimResNet18(4, (8, 8, 1), nf=2)
    weights = network.state_dict()
    with raises_naming(FileFormatError, "model", "SlimResNet18", "head.bias"):
        load_weights(
            SlimResNet18(5, (8, 8, 1), nf=2), {**weights, "head.weight": torch.zeros(5, 16)}, "model"
        )
    del weights["head.bias"]
    with pytest.raises(FileFormatError, match=r"Missing key.*head\.bias"):
        load_weights(network, weights, "model")


def test_a_tensor_under_two_names_is_kept_under_both(tmp_path):
    """A network may register one module twice; safetensors itself refuses memory that is shared."""
    weight = torch.arange(6.0).reshape(2, 3)
    save_tensors(tmp_path / "a.safetensors", {"one": weight, "other": weight, "part": weight[:1]}, {})
    found, _ = load_tensors(tmp_path / "a.safetensors")
    assert torch.equal(found["one"], weight)
    assert torch.equal(found["other"], weight)
    assert torch.equal(found["part"], weight[:1])


def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # Python ignores the signal
    try:
        with pytest.raises(OSError, match=str(path)) as caught:
            save_tensors(path, {"a": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert not list(tmp_path.iterdir())


@settings(suppress_health_check=list(HealthCheck), max_examples=25, derandomize=True)
@given(data=st.data())
def test_what_is_refused_leaves_the_network_as_it_was(tmp_path, data):
    network = torch.nn.Linear(3, 2)
    path = tmp_path / "model.safetensors"
    save_tensors(path, network.state_dict(), {"epoch": 3})
    path.write_bytes(data.draw(damaged(st.just(path.read_bytes())) | lying_safetensors()))
    before = [weight.clone() for weight in network.state_dict().values()]
    try:
        load_weights(network, load_tensors(path)[0], path)
    except EquableError:
        assert all(torch.equal(a, b) for a, b in zip(before, network.state_dict().values(), strict=True))
