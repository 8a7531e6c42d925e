"""An address without a scheduler is refused in one line and a short time."""

import gc
import socket
import sys
import time

import pytest

from equable.benchmark import workers
from equable.errors import ClusterError, MissingExtraError

pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_TO_CONNECT", 0.5)


@pytest.fixture
def listener():
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def refusal(address, capfd):
    with pytest.raises(ClusterError) as caught, workers.connected(address):
        pass
    text = str(caught.value)
    del caught
    gc.collect()  # a client that was not closed would print a warning now
    assert capfd.readouterr() == ("", "")
    assert text.startswith("--dask must")
    assert address in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("foo", "missing port number"),
        ("http://127.0.0.1:8786", "unknown address scheme 'http'"),
        ("tcp://127.0.0.1:99999", "no scheduler answered"),
    ],
)
def test_what_is_no_address_is_refused(address, reason, capfd):
    assert reason in refusal(address, capfd)


def test_nobody_listens(capfd, listener):
    address = "tcp://{}:{}".format(*listener.getsockname())
    listener.close()
    begin = time.monotonic()
    assert refusal(address, capfd).endswith("no scheduler answered there within 0.5 s")
    assert time.monotonic() - begin < 10


def test_somebody_else_listens(capfd, listener):
    address = "tcp://{}:{}".format(*listener.getsockname())
    assert refusal(address, capfd).endswith("no scheduler answered there within 0.5 s")


def test_a_worker_is_no_scheduler(capfd, monkeypatch):
    async def identity():
        return {"type": "Worker"}

    class Worker:
        def __init__(self, *_, **__):
            self.identity = identity

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

    monkeypatch.setattr("distributed.rpc", Worker)
    assert refusal("tcp://127.0.0.1:1", capfd).endswith("this is the address of a Dask worker")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"equable\[dask\]"), workers.connected("tcp://x:1"):
        pass


def test_a_scheduler_without_workers_is_named_and_its_end_noticed(capfd, monkeypatch):
    class Client:
        status = "running"
        closed = False

        def __init__(self, address, **_):
            self.address = address

        def scheduler_info(self):
            return {"workers": {}}

        def close(self, timeout):
            self.closed = True

    async def answer(address):
        return None

    monkeypatch.setattr(workers, "_require_answer", answer)
    monkeypatch.setattr("distributed.Client", Client)
    with workers.connected("tcp://planted:1") as (client, check):
        check()
        assert "waiting for workers at tcp://planted:1" in capfd.readouterr().err
        client.status = "connecting"
        with pytest.raises(ClusterError, match="tcp://planted:1 has stopped"):
            check()
    assert client.closed
