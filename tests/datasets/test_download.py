"""The downloader against a server on loopback: errors that pass, errors that stay, files left behind."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from equable.datasets import DATASETS, RemoteFile, fetch
from equable.datasets.download import cache_folder, fetch_file
from equable.errors import DataError, MissingExtraError
from messages import assert_words, raises_naming

BODY = bytes(range(256)) * 3000  # several chunks
Answer = Callable[[BaseHTTPRequestHandler], None]


def whole(handler: BaseHTTPRequestHandler, body: bytes = BODY) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def status(code: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def truncated(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(BODY[: len(BODY) // 2])


def endless(handler: BaseHTTPRequestHandler) -> None:
    """An answer without Content-Length, far longer than the registered size."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(BODY)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the client hung up, as it should


def mislabelled(handler: BaseHTTPRequestHandler) -> None:
    """As some servers do, declare a .tar.gz file as gzip-encoded content if the client accepts that."""
    if "gzip" in handler.headers.get("Accept-Encoding", ""):
        return status(500)(handler)
    return whole(handler)


class Server:
    """A server that gives its answers in turn, repeats the last, and counts the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [whole]
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = outer.answers[min(outer.requests, len(outer.answers) - 1)]
                outer.requests += 1
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/data.bin"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def record(self, body: bytes = BODY) -> RemoteFile:
        return RemoteFile("data.bin", self.url, len(body), hashlib.md5(body).hexdigest())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda _: None)  # pooch waits 1, 2 and 3 seconds
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_a_file_is_fetched_once_and_then_taken_from_the_cache(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        path = fetch_file(server.record(), tmp_path / "new" / "cache")
        assert path.read_bytes() == BODY
    assert server.requests == 1
    assert os.listdir(tmp_path / "new" / "cache") == ["data.bin"]


def test_failed_attempts_are_repeated(server: Server, tmp_path: Path) -> None:
    server.answers = [status(503), truncated, lambda handler: whole(handler, BODY[::-1]), whole]
    assert fetch_file(server.record(), tmp_path).read_bytes() == BODY
    assert server.requests == 4
    assert os.listdir(tmp_path) == ["data.bin"]


def test_the_umask_decides_who_may_read(server: Server, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = fetch_file(server.record(), tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("trouble", "requests", "said"),
    [
        (status(404), 4, "tried 4 times: 404"),
        (truncated, 4, "tried 4 times"),
        (lambda handler: whole(handler, BODY[::-1]), 4, hashlib.md5(BODY).hexdigest()),
        (endless, 1, f"must be some {len(BODY)} bytes"),
    ],
    ids=["gone", "truncated", "changed", "endless"],
)
def test_what_does_not_pass_says_what_to_do_and_leaves_nothing(
    server: Server, tmp_path: Path, trouble: Answer, requests: int, said: str
) -> None:
    server.answers = [trouble]
    with pytest.raises(DataError) as caught:
        fetch_file(server.record(), tmp_path)
    assert said in str(caught.value)
    assert_words(str(caught.value), server.url, "by hand", str(tmp_path / "data.bin"))
    assert server.requests == requests
    assert os.listdir(tmp_path) == []


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    record = RemoteFile("data.bin", f"http://127.0.0.1:{port}/data.bin", 3, "0" * 32)
    with raises_naming(DataError, "4 times", "network", "by hand"):
        fetch_file(record, tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_server_may_not_unpack_on_the_way(server: Server, tmp_path: Path) -> None:
    server.answers = [mislabelled]
    assert fetch_file(server.record(), tmp_path).read_bytes() == BODY


def test_an_interrupted_download_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("requests.Response.iter_content", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch_file(server.record(), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_put_there_by_hand_is_verified_and_never_deleted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(BODY[:-1])
    with raises_naming(DataError, "must", "md5", "Remove it", "download"):
        fetch_file(server.record(), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == BODY[:-1]
    (tmp_path / "data.bin").write_bytes(BODY)
    assert fetch_file(server.record(), tmp_path).read_bytes() == BODY
    assert server.requests == 0


def test_without_permission_to_download(server: Server, tmp_path: Path) -> None:
    with raises_naming(DataError, "missing", "downloading is off", "http://127"):
        fetch_file(server.record(), tmp_path, download=False)
    assert server.requests == 0


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="could not be written"):
        fetch_file(server.record(), tmp_path / "file" / "cache")


def test_a_folder_in_the_files_place(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").mkdir()
    with pytest.raises(DataError, match="must be a file"):
        fetch_file(server.record(), tmp_path)


def test_quiet_where_there_is_no_terminal(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch_file(server.record(), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_where_files_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EQUABLE_CACHE", raising=False)
    assert cache_folder().name == "equable"
    monkeypatch.setenv("EQUABLE_CACHE", str(tmp_path / "by environment"))
    assert cache_folder() == tmp_path / "by environment"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    with raises_naming(DataError, "data_dir must", "path", "'~no-such-user/x'"):
        cache_folder("~no-such-user/x")
    monkeypatch.setenv("EQUABLE_CACHE", "~no-such-user/x")
    with raises_naming(DataError, "EQUABLE_CACHE must", "path", "'~no-such-user/x'"):
        cache_folder()


def test_without_pooch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    monkeypatch.delenv("EQUABLE_CACHE", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'equable\[train\]'"):
        fetch("cifar10")
    with pytest.raises(MissingExtraError, match="pooch"):
        fetch_file(DATASETS["cifar10"].files[0], tmp_path)
    assert os.listdir(tmp_path) == []
