"""Downloads: whole or not at all, checked, and said what is wrong."""

import hashlib
import logging

import pytest

from orchestrator.datasets import _download
from orchestrator.datasets._download import (
    fetched,
    origin_of,
)
from orchestrator.errors import DatasetError
from tests.datasets.web import Web

CONTENT = bytes(range(256)) * 400
KEY = "hf_this-is-no-key"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def web():
    with Web() as server:
        server.files["/file"] = CONTENT
        yield server


def fetch(web, path, *, place="/file", sha256=SHA256, token=""):
    return fetched(web.url + place, path, sha256, token)


def message_of(web, path, **settings):
    with pytest.raises(DatasetError) as caught:
        fetch(web, path, **settings)
    return str(caught.value)


def leftovers(path):
    return {file.name for file in path.parent.iterdir()} - {path.name}


def test_a_file_is_fetched_once(web, tmp_path):
    path = tmp_path / "a" / "file"
    assert fetch(web, path).read_bytes() == CONTENT
    fetch(web, path)
    assert web.counts["/file"] == 1


def test_where_a_file_came_from_is_recorded_beside_it(web, tmp_path):
    web.headers["X-Repo-Commit"] = "abc123"
    path = fetch(web, tmp_path / "file")
    origin = origin_of(path)
    assert origin is not None
    assert (origin.url, origin.sha256, origin.n_bytes) == (web.url + "/file", SHA256, len(CONTENT))
    assert origin.revision == "abc123"
    assert leftovers(path) == {"file.origin.json", "file.lock"}


@pytest.mark.parametrize("proxy", ["ALL_PROXY", "all_proxy", "http_proxy"])
def test_a_file_is_fetched_through_the_proxy_of_the_environment(web, tmp_path, monkeypatch, proxy):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(proxy, web.url)
    place = "http://data.invalid/file"
    web.files[place] = CONTENT
    assert fetched(place, tmp_path / "a", SHA256).read_bytes() == CONTENT
    monkeypatch.setenv(proxy, "socks5://127.0.0.1:1")
    assert fetch(web, tmp_path / "b").read_bytes() == CONTENT


def test_a_redirect_is_followed(web, tmp_path):
    web.redirects["/old"] = "/file"
    assert fetch(web, tmp_path / "file", place="/old").read_bytes() == CONTENT


def test_the_key_goes_to_the_address_alone_and_not_where_it_leads(web, tmp_path):
    web.redirects["/old"] = "/file"
    fetch(web, tmp_path / "file", place="/old", token=KEY)
    sent = {path: headers.get("Authorization") for path, headers in web.requests}
    assert sent == {"/old": f"Bearer {KEY}", "/file": None}


def test_the_key_is_in_no_message(web, tmp_path):
    with pytest.raises(DatasetError) as caught:
        fetched(web.url + "/none", tmp_path / "file", token=KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://127.0.0.1/file"])
def test_a_redirect_to_anything_but_the_web_is_refused(web, tmp_path, address):
    web.redirects["/old"] = address
    assert "not allowed" in message_of(web, tmp_path / "file", place="/old")


def test_what_breaks_off_is_fetched_again(web, tmp_path):
    web.faults["/file"] = ["truncate"]
    assert fetch(web, tmp_path / "file").read_bytes() == CONTENT


def test_what_breaks_off_each_time_leaves_nothing_behind(web, tmp_path):
    web.faults["/file"] = ["truncate", 503, "truncate"]
    path = tmp_path / "file"
    assert "51,200 of 102,400 bytes" in message_of(web, path)
    assert web.counts["/file"] == 3
    assert leftovers(path) == {"file.lock"}


def test_a_wrong_checksum_leaves_nothing_behind(web, tmp_path):
    path = tmp_path / "file"
    message = message_of(web, path, sha256="0" * 64)
    assert SHA256 in message
    assert "discarded" in message
    assert leftovers(path) == {"file.lock"}
    assert not path.exists()


def test_a_file_without_published_checksum_is_held_to_the_first_one(web, tmp_path):
    path = fetch(web, tmp_path / "file", sha256="")
    path.write_bytes(CONTENT + b"x")
    assert "first fetched" in message_of(web, path, sha256="")


def test_a_cached_file_is_held_to_its_published_checksum(web, tmp_path):
    path = fetch(web, tmp_path / "file")
    path.write_bytes(b"x")
    assert "delete it to download it again" in message_of(web, path)


def test_what_is_not_there_is_not_asked_for_again(web, tmp_path):
    assert "404" in message_of(web, tmp_path / "file", place="/none")
    assert web.counts["/none"] == 1


def test_a_refusal_says_how_consent_is_shown(web, tmp_path):
    web.faults["/file"] = [401]
    assert "HF_TOKEN" in message_of(web, tmp_path / "file")


def test_a_server_that_stalls_is_tried_again(web, tmp_path, monkeypatch):
    monkeypatch.setattr(_download, "STALL_S", 0.5)
    web.faults["/file"] = ["stall"]
    assert fetch(web, tmp_path / "file").read_bytes() == CONTENT
    # A busy machine may stall, too.
    assert web.counts["/file"] >= 2


def test_no_server_is_an_error_and_not_an_exception_of_sockets(tmp_path):
    with Web() as gone:
        url = gone.url
    with pytest.raises(DatasetError, match="cannot be downloaded"):
        fetched(url + "/file", tmp_path / "file")


def test_other_schemes_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="only http and https"):
        fetched("file:///etc/hostname", tmp_path / "file")


def test_a_folder_that_cannot_be_written_is_said(web, tmp_path):
    (tmp_path / "a").write_text("a file, not a folder")
    assert "cannot be written" in message_of(web, tmp_path / "a" / "file")


def test_size_and_checksum_are_logged(web, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="orchestrator.datasets._download")
    fetch(web, tmp_path / "file", sha256="")
    assert "(102 kB)" in caplog.text
    assert SHA256 in caplog.text


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_over_the_limit_is_not_kept(web, tmp_path, announced, monkeypatch):
    monkeypatch.setattr(_download, "MOST_BYTES", len(CONTENT) - 1)
    if not announced:
        web.faults["/file"] = ["unannounced"]
    path = tmp_path / "file"
    with pytest.raises(DatasetError, match=r"longer than 102 kB; the download"):
        fetched(web.url + "/file", path)
    assert leftovers(path) == {"file.lock"}


def test_nothing_of_netrc_is_sent(web, tmp_path, monkeypatch):
    path = tmp_path / ".netrc"
    path.write_text("default login me password secret")
    monkeypatch.setenv("NETRC", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    fetch(web, tmp_path / "file")
    assert "Authorization" not in web.requests[0][1]
