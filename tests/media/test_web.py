"""Files of web servers: read as those of a disk, refused where their owner or a private address says so."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from urllib3 import HTTPResponse

from framekiln.contract.errors import MediaError, Reason
from framekiln.job import Job
from framekiln.media import web
from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile, open_media
from framekiln.media.network import Network
from framekiln.media.packets.decode import decode
from framekiln.media.units import Unit
from framekiln.planning.manifest import ProfileFile
from tests.support.errors import fails
from tests.support.machine.web_pages import serving
from tests.support.media.collections_factory import photo
from tests.support.media.media_factory import film, numbered
from tests.support.runs.engine_factory import order
from tests.support.runs.serial_engine import without_ray

QUICK = {"timeout_s": 5.0, "retries": 2, "private_addresses": True}


@pytest.fixture
def pages():
    with serving() as pages:
        yield pages


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    monkeypatch.setenv("FRAMEKILN_NETWORK", "{}")
    monkeypatch.setattr(web, "_BACKOFF_S", 0.0)

    def use(**changes):
        Network(**QUICK | changes).use()

    use()
    return use


def read(url):
    with web.download(url) as stream:
        return stream.read()


def reason(url):
    with pytest.raises(MediaError) as error:
        read(url)
    return error.value.reason, str(error.value)


def rows(source):
    unit = Unit(name="u", media=tuple(list_media(str(source))))
    packets = list(decode(unit, ("frame",), 0, DecodeConfig()))
    failures = {failure.media_id: failure.kind for packet in packets for failure in packet.failures}
    return [row for packet in packets for row in packet.rows.to_pylist()], failures


def test_rows_of_a_list_are_those_of_a_folder_and_each_file_is_asked_for_once(tmp_path, pages):
    for number in range(4):
        photo(tmp_path / "in" / f"{number}.png", number)
    film(tmp_path / "in" / "film.mkv", [numbered(index) for index in range(3)])
    expected, _ = rows(tmp_path / "in")
    names = {f"/{path.name}": path.read_bytes() for path in (tmp_path / "in").iterdir()}
    urls = [pages.add(name, body) for name, body in names.items()]
    (tmp_path / "list.txt").write_text("\n".join([*urls, f"{pages.url}/gone.png"]))
    found, failures = rows(tmp_path / "list.txt")
    assert found == expected and failures == {"gone.png": "unreadable"}
    assert sorted(pages.requests) == sorted([*names, "/gone.png"])


def test_addresses_that_differ_in_their_query_are_different_files(tmp_path, pages):
    for number in range(2):
        photo(tmp_path / f"{number}.png", number)
        pages.add(f"/photo?id={number}", (tmp_path / f"{number}.png").read_bytes())
    urls = [f"{pages.url}/photo?id={number}" for number in range(2)]
    (tmp_path / "list.txt").write_text("\n".join([*urls, f"{urls[0]}#part", urls[1]]))
    found, failures = rows(tmp_path / "list.txt")
    assert [row["media_id"] for row in found] == ["photo?id=0", "photo?id=1"] and not failures


def test_a_list_on_a_web_server_names_files_beside_it_and_none_of_this_machine(tmp_path, pages):
    own = pages.add("/a/list.txt", b"b.png\n/c.png\n")
    assert [item.path for item in list_media(own)] == [f"{pages.url}/a/b.png", f"{pages.url}/c.png"]
    other = pages.add("/other.txt", b"b.png\nfile:///etc/passwd\n")
    with fails("FK-LIST-OF-OTHERS"):
        list_media(other)
    with fails("FK-INPUT-UNREADABLE"):
        list_media(f"{pages.url}/nothing")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "168.63.129.16", "::1", "::", "fe80::1", "fe80::1%2", "fd00:ec2::254"),
        *("fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("2002:7f00:1::1", "64:ff9b:1::7f00:1", "64:ff9b:1:a00::8.8.8.8", "::127.0.0.1", "::8.8.8.8"),
    ],
)
def test_private_addresses(address):
    assert not web.is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "151.101.1.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses(address):
    assert web.is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_nothing_is_asked_of_a_private_address(pages, rules, host):
    rules(private_addresses=False)
    kind, text = reason(pages.add("/a").replace("127.0.0.1", host))
    assert kind is Reason.REFUSED and "network.private_addresses" in text and not pages.requests


def test_no_redirect_leads_to_a_private_address_or_to_a_file(pages, rules, monkeypatch):
    rules(private_addresses=False)
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    with serving("127.0.0.2") as private:
        kind, _ = reason(pages.add("/a", status=302, Location=private.add("/secret")))
        assert kind is Reason.REFUSED and not private.requests
    kind, text = reason(pages.add("/b", status=301, Location="file:///etc/passwd"))
    assert kind is Reason.UNREADABLE and "file:///etc/passwd" in text
    assert read(pages.add("/c", status=307, Location=pages.add("/d", b"moved"))) == b"moved"


def test_a_circle_of_redirects_ends(pages):
    assert reason(pages.add("/a", status=302, Location=f"{pages.url}/a"))[0] is Reason.UNREADABLE
    assert len(pages.requests) == 6


@pytest.mark.parametrize(
    "tag, is_refused",
    [
        ("noai", True),
        ("NoImageIndex, nofollow", True),
        ("nofollow, noimageai", True),
        ("max-image-preview: large, noindex", True),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST", False),
        ("framekiln: noai", True),
        ("otherbot: noai, noindex", False),
        ("otherbot: noai, framekiln: noindex", True),
        ("nofollow, nosnippet, all", False),
    ],
)
def test_what_an_owner_does_not_allow_is_not_used(pages, rules, tag, is_refused):
    url = pages.add("/a", X_Robots_Tag=tag)
    if is_refused:
        assert reason(url)[0] is Reason.REFUSED
    else:
        assert read(url) == b"body"
    rules(robots_tag=False)
    assert read(url) == b"body"


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_no_more_is_read_than_is_allowed(pages, rules, headers):
    url = pages.add("/a", b"x" * 100_000, **headers)
    assert len(read(url)) == 100_000
    rules(max_bytes=99_999)
    assert reason(url)[0] is Reason.TOO_LARGE


def test_a_busy_server_and_a_cut_answer_are_asked_again(pages):
    for status, wait in ((503, "0"), (429, "soon")):
        pages.add("/a", status=status, Retry_After=wait)
    pages.add("/a", b"cut", Content_Length="10")
    assert read(pages.add("/a", b"whole")) == b"whole"
    assert len(pages.requests) == 4


@pytest.mark.parametrize("status, requests", [(404, 1), (403, 1), (410, 1), (503, 3), (429, 3), (507, 1)])
def test_a_server_without_the_file_is_an_error_that_says_so(pages, status, requests):
    kind, text = reason(pages.add("/a", status=status))
    assert kind is (Reason.UNREADABLE if status in (403, 404, 410) else Reason.UNREACHABLE)
    assert f"HTTP {status}" in text and len(pages.requests) == requests


def test_a_run_reads_again_what_a_busy_server_did_not_give(tmp_path, pages):
    for name in ("a", "b"):
        photo(tmp_path / f"{name}.png", 1)
        pages.add(f"/{name}.png", (tmp_path / f"{name}.png").read_bytes())
    pages.answers["/b.png"].insert(0, (503, {}, b""))
    (tmp_path / "list.txt").write_text(f"{pages.url}/a.png\n{pages.url}/b.png\n{pages.url}/gone.png")
    profile = ProfileFile.model_validate({"network": {"private_addresses": True, "retries": 0}})
    wanted = replace(
        order(str(tmp_path / "list.txt"), str(tmp_path / "out"), {"crc": ("Checksum", {})}), profile=profile
    )
    with without_ray():
        first, again = Job(wanted).run(), Job(wanted).run()
    assert (first.frames, first.errors) == (1, {"unreachable": 1, "unreadable": 1})
    assert (again.frames, again.errors["unreachable"], again.errors["unreadable"]) == (2, 0, 1)


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_answer_without_its_end_is_asked_for_again(pages, coding, pack):
    content = pack(bytes(range(256)) * 400)
    pages.add("/a", content[: len(content) // 2], Content_Encoding=coding)
    assert read(pages.add("/a", content, Content_Encoding=coding)) == bytes(range(256)) * 400
    assert len(pages.requests) == 2
    assert reason(pages.add("/b", content[:-9], Content_Encoding=coding))[0] is Reason.UNREACHABLE


def test_an_answer_that_stalls_ends_with_the_name_of_the_setting(pages, rules):
    rules(timeout_s=0.2, retries=0)
    kind, text = reason(pages.add("/a", b"be", Content_Length="10", Stall="yes"))
    assert kind is Reason.UNREACHABLE and "network.timeout_s" in text
    assert reason(pages.add("/b", b"cut", Content_Length="10"))[1].count("3 bytes read") == 1


@contextmanager
def endless(start, again):
    def answer():
        with server.accept()[0] as connection, suppress(OSError):
            connection.sendall(start)
            while True:
                connection.sendall(again)
                time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/a"


OK, CONTINUE = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 -\r\n\r\n"
CHUNKS, LONG = OK + b"Transfer-Encoding: chunked\r\n\r\n", OK + b"Content-Length: 99999\r\n\r\n"


@pytest.mark.parametrize("start, again", [(b"", CONTINUE), (OK, b"a"), (CHUNKS, b"0"), (LONG, b"a")])
def test_an_answer_that_never_stalls_and_never_ends_is_unreachable(rules, start, again):
    rules(timeout_s=0.1, retries=0)
    with endless(start, again) as url:
        kind, text = reason(url)
    assert kind is Reason.UNREACHABLE and "network.timeout_s" in text


def test_what_comes_with_a_redirect_is_not_read(pages):
    head = f"HTTP/1.1 302 Found\r\nLocation: {pages.add('/b')}\r\nContent-Length: 999999999999\r\n\r\n"
    with endless(head.encode(), b"a" * 65536) as url:
        assert read(url) == b"body"


def test_a_server_waits_no_longer_than_it_may():
    asked = HTTPResponse(headers={"Retry-After": "3600"}, status=503)
    assert web._Retries().get_retry_after(asked) == web._LONGEST_WAIT_S


def test_hosts_that_do_not_exist_and_addresses_that_are_none(tmp_path):
    urls = ["http://nothing.invalid/a", "http://[a/b", "http://", "http://127.0.0.1:1/a"]
    urls += ["s3://[a/b.jpg", "gs://\u2100/c"]
    kinds = ["unreachable" if url.endswith(":1/a") else "unreadable" for url in urls]
    (tmp_path / "list.txt").write_text("\n".join(urls))
    found, failures = rows(tmp_path / "list.txt")
    assert not found and sorted(failures.values()) == sorted(kinds)


def test_openings_of_one_film_share_a_download(pages):
    media = MediaFile(media_id="a", path=pages.add("/film", bytes(range(256)) * 100), size=0, mtime_ns=0)
    with open_media(media) as one, open_media(media) as other:
        one.seek(256)
        assert other.read(3) == one.read(3) == b"\0\1\2" and one.tell() == 259
    assert pages.requests == ["/film"]
