"""An address without a scheduler is refused in one line and a short time."""

import asyncio
import gc
import socket
import time

import pytest

from equable.benchmark import dask_client
from equable.errors import ClusterError

pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(dask_client, "SECONDS_TO_CONNECT", 0.5)


@pytest.fixture
def listener():
    """Somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def refusal(address, capfd):
    with pytest.raises(ClusterError) as caught, dask_client.connected(address):
        pass
    text = str(caught.value)
    del caught
    gc.collect()  # a client that failed would complain now
    assert capfd.readouterr() == ("", "")
    assert text.startswith(f"--dask must be the address of a scheduler; {address}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("foo", "missing port number"),
        ("tcp://127.0.0.1:x", "invalid literal"),
        ("tcp://127.0.0.1:99999", "it must be like tcp://10.0.0.5:8786"),
        ("tcp://:8786", "it must be like tcp://10.0.0.5:8786"),
        ("http://127.0.0.1:8786", "unknown address scheme 'http'"),
        ("tcp://no-such-host.invalid:8786", ""),
    ],
)
def test_what_is_no_address_is_refused_without_a_try(address, reason, capfd, monkeypatch):
    monkeypatch.setattr(dask_client, "_require_answer", None)
    monkeypatch.setattr(dask_client, "_make_client", None)
    text = refusal(address, capfd)
    assert reason in text
    assert "NoneType" not in text


def test_nobody_listens(capfd, listener):
    address = "tcp://{}:{}".format(*listener.getsockname())
    listener.close()
    begin = time.monotonic()
    assert refusal(address, capfd).endswith("no scheduler answered there within 0.5 s")
    assert time.monotonic() - begin < 10


def test_somebody_else_listens(capfd, listener):
    address = "tcp://{}:{}".format(*listener.getsockname())
    assert refusal(address, capfd).endswith("no scheduler answered there within 0.5 s")


def test_a_client_that_fails_is_closed_once_and_says_nothing_more(capfd, monkeypatch):
    """The scheduler may go between its answer and the client's first word."""
    from distributed import Client

    made, closed = [], []

    async def answer(address):
        return None

    async def fail(client, timeout):
        made.append(client)
        client.status = "connecting"
        raise OSError("planted")

    async def close(client, fast=False):
        closed.append(client.id)
        await asyncio.sleep(3600)

    monkeypatch.setattr(dask_client, "_require_answer", answer)
    monkeypatch.setattr(Client, "_start", fail)
    monkeypatch.setattr(Client, "_close", close)
    assert refusal("tcp://127.0.0.1:1", capfd).endswith(": planted")
    made.pop().__del__()
    assert len(closed) == 1
