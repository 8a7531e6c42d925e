"""Cells on the workers of a Dask scheduler that somebody else started and keeps.

Dask moves the units and notices dead workers; all else is ours. It counts a worker's death against every
task the worker was given, also those it had not begun, and gives such a task up after its
``allowed-failures``: that is no verdict here, the task is sent again. Whether a cell itself kills workers is
read from its journal (`equable.benchmark.cells`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

from equable.errors import ClusterError, MissingExtraError

Unit = TypeVar("Unit")
Result = TypeVar("Result")

SECONDS_BETWEEN_LOOKS = 0.2
#: Seconds a scheduler has to answer at the start: it may have been started a moment ago.
SECONDS_TO_CONNECT = 10.0
#: Seconds without a scheduler before the run ends; one that comes back sooner is given all cells again.
SECONDS_TO_RECONNECT = 10.0
#: Times a unit is sent again because workers died that had not begun it.
SENDS = 50


def run_on(
    address: str,
    work: Callable[[Unit], Result],
    units: Sequence[Unit],
    tick: Callable[[], None],
    stop: Callable[[], None],
) -> Iterator[tuple[Unit, Result]]:
    """Yield (unit, result) as units finish; see `equable.benchmark.executors.run_dask`."""
    with _connected(address) as client:
        queue = _Queue(client, work)
        try:
            for unit in units:
                queue.send(unit)
            _say_if_nobody_works(client, address)
            while queue.waiting:
                yield from queue.collect()
                _require_scheduler(client, address)
                tick()
                time.sleep(SECONDS_BETWEEN_LOOKS)
        except BaseException:
            stop()
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(list(queue.waiting), force=True)
            raise


class _Queue:
    """Units on their way, by future."""

    def __init__(self, client: Any, work: Callable[[Any], Any]) -> None:
        self.client, self.work = client, work
        self.waiting: dict[Any, Any] = {}
        self.sent: dict[int, int] = {}  # id of the unit → times

    def send(self, unit: Any) -> None:
        """Hand a unit to the scheduler. Nothing is shared between units, nothing is kept by value."""
        self.sent[id(unit)] = self.sent.get(id(unit), 0) + 1
        self.waiting[self.client.submit(self.work, unit, pure=False, retries=0)] = unit

    def collect(self) -> Iterator[tuple[Any, Any]]:
        """The results that are there; what the cluster lost is sent again."""
        for future in [future for future in self.waiting if future.status != "pending"]:
            unit = self.waiting.pop(future)
            if future.status == "finished":
                try:
                    result = future.result(timeout=SECONDS_TO_CONNECT)
                except Exception:  # its worker died with the result: another finds the cell done
                    self.send(unit)
                    continue
                yield unit, result
            elif future.status == "error" and not self._may_send(future, unit):
                raise ClusterError(f"a worker could not take a cell: {future.exception()}")
            else:  # workers died, or a scheduler came back that knows of nothing
                self.send(unit)

    def _may_send(self, future: Any, unit: Any) -> bool:
        from distributed.scheduler import KilledWorker

        return isinstance(future.exception(), KilledWorker) and self.sent[id(unit)] < SENDS


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        import_module("distributed")
    except ImportError as error:
        raise MissingExtraError(
            f"--dask needs {error.name}; install it with: pip install 'equable[dask]'"
        ) from error
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # what matters is said by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        _check_address(address)
        # In a thread of its own: a notebook has a running loop in this one.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(_require_answer(address))).result()
        client = _make_client(address)
    except Exception as error:  # of the system, of TLS, of Dask: all of them say what is wrong with it
        raise ClusterError(f"--dask must be the address of a scheduler; {address}: {error}") from error
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=2)


def _check_address(address: str) -> None:
    """Refuse what no connection can be tried to; a host must be known by name."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    scheme, place = parse_address(address)
    get_backend(scheme)
    host, port = parse_host_port(place)
    if not host or not 0 < port < 2**16:
        raise ValueError("it must be like tcp://10.0.0.5:8786")
    socket.getaddrinfo(host, port)


async def _require_answer(address: str) -> None:
    """Ask who is there: a client would wait for ever for a listener that says nothing."""
    import distributed

    dask: Any = distributed  # without types
    words = dask.Security().get_connection_args("client")
    try:
        async with asyncio.timeout(SECONDS_TO_CONNECT), dask.rpc(address, connection_args=words) as other:
            kind = (await other.identity())["type"]
    except TimeoutError:
        raise TimeoutError(f"no scheduler answered there within {SECONDS_TO_CONNECT:g} s") from None
    if kind != "Scheduler":
        raise ValueError(f"a Dask {kind.lower()} is there")


def _make_client(address: str) -> Any:
    from distributed import Client

    client: Any = Client.__new__(Client)
    try:
        client.__init__(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except Exception:
        with suppress(Exception):
            client.close(timeout=1)
        client.status = "closed"  # or it would close itself once more when it is collected, and complain
        raise
    return client


def _require_scheduler(client: Any, address: str) -> None:
    """Wait a little for a scheduler that went away; a `ClusterError` if it stays away."""
    end = time.monotonic() + SECONDS_TO_RECONNECT
    while client.status != "running":
        if client.status == "closed" or time.monotonic() > end:
            raise ClusterError(f"the scheduler at {address} went away; the same command resumes")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _say_if_nobody_works(client: Any, address: str) -> None:
    if not client.scheduler_info()["workers"]:
        print(f"equable: waiting for workers at {address}", file=sys.stderr)
