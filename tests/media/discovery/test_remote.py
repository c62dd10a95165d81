"""Buckets as input: patterns, lists that are looked up at once, odd keys, and servers that are slow."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.contract.errors import MediaError
from framekiln.media.discovery import remote
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import connect, read_bytes
from framekiln.media.network import Network
from framekiln.output.object_store import Store
from tests.support.errors import fails
from tests.support.machine.object_server import Objects, served

KEYS = (
    *("2023-12/a.jpg", "2024-01/a.jpg", "2024-01/b.png", "2024-01/deep/er/c.jpg", "2024-02/.hidden/d.jpg"),
    *("2024-02/e.jpg", "2024-02/e.JPG", "other/2024-03/f.jpg", "2024-list/[x].jpg"),
)


@pytest.fixture
def bucket():
    with served(Objects(files={f"in/{key}": key.encode() for key in KEYS})) as objects:
        yield objects


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    monkeypatch.setenv("FRAMEKILN_NETWORK", "{}")


def ids(source):
    return [item.media_id for item in list_media(str(source))]


@pytest.mark.parametrize(
    "pattern",
    ["2024-*/*.jpg", "2024-*/**/*.jpg", "**/*.jpg", "**/c.*", "*/deep", "2024-0[12]", "2024-0[12]/*", "*/.hidden/*"],
)
def test_a_pattern_names_the_files_that_it_names_on_a_disk(bucket, tmp_path, pattern):
    for key in KEYS:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(key.encode())
    found = list_media(bucket.url.format(f"in/{pattern}"))
    assert [item.media_id for item in found] == ids(tmp_path / pattern)
    assert [read_bytes(item) for item in found] == [item.media_id.encode() for item in found]


def test_a_pattern_asks_only_for_folders_that_it_may_name(bucket):
    requests = bucket.count(lambda: list_media(bucket.url.format("in/2024-*/*.jpg")))
    assert sum(1 for _, key in requests if not key) <= 6  # of the pattern itself, of in/, and of three folders
    with fails("FK-INPUT-NO-MATCH"):
        list_media(bucket.url.format("in/2025-*/*.jpg"))
    with fails("FK-INPUT-NO-MATCH"):
        list_media(bucket.url.format("nothing/*.jpg"))


def test_the_environment_names_the_server_of_a_bucket(bucket, monkeypatch):
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu"}
    for key, value in {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bucket.port}"}.items():
        monkeypatch.setenv(key, value)
    assert ids("s3://b/in/2024-01") == ["a.jpg", "b.png", "deep/er/c.jpg"]
    assert connect("s3://b/in")[0].region == "eu"
    Store("s3://b/out").write("x.json", b"{}")
    assert bucket.files["out/x.json"] == b"{}"


def test_a_key_with_the_signs_of_a_pattern_is_itself(bucket):
    assert ids(bucket.url.format("in/2024-list/[x].jpg")) == ["[x].jpg"]


def test_keys_with_empty_parts_are_files_of_their_own(bucket):
    bucket.files |= {"odd/a//b.jpg": b"1", "odd//b.jpg": b"2", "odd/b.jpg": b"3"}
    media = {item.media_id: item for item in list_media(bucket.url.format("odd"))}
    assert set(media) == {"a/%2F/b.jpg", "%2F/b.jpg", "b.jpg"} and read_bytes(media["b.jpg"]) == b"3"
    with pytest.raises(MediaError, match="copy it to another key"):
        read_bytes(media["a/%2F/b.jpg"])


def test_entries_of_a_list_are_looked_up_many_at_a_time(bucket, tmp_path, monkeypatch):
    together, first = threading.Barrier(4), iter(range(4))
    bucket.before = lambda *_: None if next(first, None) is None else together.wait(timeout=60)
    urls = [bucket.url.format(f"in/{key}") for key in KEYS[:8]]
    (tmp_path / "list.txt").write_text("\n".join(urls))
    monkeypatch.setattr(remote, "_WORD_S", 0.0)
    words = []
    found = list_media(str(tmp_path / "list.txt"), on_message=words.append)
    assert [item.size for item in found] == [len(item.media_id) for item in found] and not together.broken
    assert words == ["Looked up 8 of 8 entries of the list."]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")])
def test_nobody_is_asked_for_what_a_list_tells(bucket, tmp_path, kind):
    urls = [bucket.url.format(f"in/{key}") for key in KEYS[:3]]
    times = pa.array([1_700_000_000_000_000] * 3, pa.int64()).cast(kind)
    columns = {"url": urls, "size": [1, 2, None], "mtime_ns": times}
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    found = []
    requests = bucket.count(lambda: found.extend(list_media(str(tmp_path / "list.parquet"))))
    assert requests == [("HEAD", "in/2024-01/b.png")]
    factor = 1 if kind == pa.int64() else 1000
    assert [(item.size, item.mtime_ns) for item in found[:2]] == [(n, 1_700_000_000_000_000 * factor) for n in (1, 2)]


@pytest.mark.parametrize(
    "text",
    ['caption,url\n"two\nlines, one",URL\n', "url\tcaption\r\nURL\tx\r\n", "\ufeffURL\nURL\n", "path\nURL"],
)
def test_tables_of_addresses_as_text(bucket, tmp_path, text):
    own = bucket.url.format("in/2023-12/a.jpg")
    header, _, rest = text.partition("\n")
    (tmp_path / "list").write_text(header + "\n" + rest.replace("URL", own))
    assert [item.path for item in list_media(str(tmp_path / "list"))] == [own]


def test_entries_beside_a_list_in_a_bucket_keep_its_address(bucket):
    bucket.files["in/list.txt"] = b"2023-12/a.jpg\n2024-01/b.png\n"
    assert [item.size for item in list_media(bucket.url.format("in/list.txt"))] == [13, 13]


def test_a_listing_that_stalls_is_a_sentence_with_the_setting(bucket):
    Network(timeout_s=1.0, retries=0).use()
    first = iter((2.2, 1.5))
    bucket.before = lambda _, key: time.sleep(next(first, 0) if not key else 0)
    with fails("FK-INPUT-UNREADABLE", "timeout_s"):
        list_media(bucket.url.format("in"))
    Network(timeout_s=6.0, retries=0).use()
    assert len(ids(bucket.url.format("in"))) == len(KEYS) - 1
