"""A client of a Dask scheduler that was started by its user, refused in seconds where none answers."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from equable.errors import ClusterError, MissingExtraError

SECONDS_TO_CONNECT = 10.0


@contextmanager
def connected(address: str) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A client of the scheduler, and a function that raises `ClusterError` when the scheduler is gone."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise MissingExtraError(
            f"--dask needs {error.name}; install it with: pip install 'equable[dask]'"
        ) from error
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # errors that matter become a `ClusterError`
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with ThreadPoolExecutor(1) as pool:  # a notebook has a running loop in this thread
            pool.submit(lambda: asyncio.run(_require_answer(address))).result()
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except Exception as error:  # of the system, of TLS or of Dask
        raise ClusterError(f"--dask must be the address of a scheduler; {address}: {error}") from error

    def check() -> None:
        if client.status != "running":
            raise ClusterError(f"the scheduler at {address} went away; the same command resumes")

    try:
        if not client.scheduler_info()["workers"]:
            print(f"equable: waiting for workers at {address}", file=sys.stderr)
        yield client, check
    finally:
        with suppress(Exception):
            client.close(timeout=2)  # the scheduler then cancels its tasks


async def _require_answer(address: str) -> None:
    """Ask for the identity: a client would wait for ever for a listener that does not answer."""
    dask: Any = import_module("distributed")
    words = dask.Security().get_connection_args("client")
    try:
        async with asyncio.timeout(SECONDS_TO_CONNECT), dask.rpc(address, connection_args=words) as other:
            kind = (await other.identity())["type"]
    except TimeoutError:
        raise TimeoutError(f"no scheduler answered there within {SECONDS_TO_CONNECT:g} s") from None
    if kind != "Scheduler":
        raise ValueError(f"a Dask {kind.lower()} is there")
