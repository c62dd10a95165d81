"""Buckets as input: patterns, lists that are looked up at once, odd keys, and servers that are slow."""

from __future__ import annotations

import tarfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from framekiln.contract.errors import MediaError
from framekiln.media import files
from framekiln.media.discovery import remote
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import connect, read_bytes, uri_of
from framekiln.media.media_ids import media_id
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
    for key in ("[x].jpg", "*.jpg", "plain.jpg"):
        bucket.files[f"in/2024-list/{key}"], words = b"\0", []
        (found,) = list_media(bucket.url.format(f"in/2024-list/{key}"), on_message=words.append)
        assert found.media_id == key and [key in word for word in words] == [True] * (key != "plain.jpg")


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


ODD = [*(f"d/shot#{number}.jpg" for number in range(10)), "d/plain.jpg", "d/plain.jpg#2", "d/a%41.jpg", "d/aA.jpg"]
ODD += ["d/q?1.jpg", "d/ü 1.jpg", "d/x.jpg", "d/x.jpg?scheme=http", "d/x.jpg?", "d/a+b&c=d.jpg"]


@pytest.fixture
def odd(monkeypatch):
    files._open_file_system.cache_clear()
    with served(Objects(files={key: b"\0" + key.encode() for key in ODD})) as objects:
        keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu"}
        for name, value in {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{objects.port}"}.items():
            monkeypatch.setenv(name, value)
        yield objects


def contents(source):
    return sorted(read_bytes(item)[1:].decode() for item in list_media(str(source)))


@pytest.mark.parametrize("has_options", [False, True])
def test_what_a_listing_writes_can_be_read_from_a_list(odd, tmp_path, has_options):
    source = odd.url.format("d") if has_options else "s3://b/d"
    media = list_media(source)
    assert sorted(item.media_id for item in media) == sorted(media_id(key[2:]) for key in ODD)
    assert sorted(read_bytes(item)[1:].decode() for item in media) == sorted(ODD)
    (tmp_path / "list.txt").write_text("\n".join(uri_of(item.path) for item in media))
    assert contents(tmp_path / "list.txt") == sorted(ODD)
    (tmp_path / "list.txt").write_text("\n".join(item.path for item in media))
    assert [item.media_id for item in list_media(str(tmp_path / "list.txt"))] == [item.media_id for item in media]


def test_keys_in_lists_are_those_that_a_store_prints(odd, tmp_path):
    keys = [key for key in ODD if "scheme" not in key]
    (tmp_path / "list.txt").write_text("\n".join(f"s3://b/{key}" for key in keys))
    pq.write_table(pa.table({"url": [f"s3://b/{key}" for key in keys]}), tmp_path / "list.parquet")
    odd.files["d/list"] = "\n".join(key[2:] for key in ODD).encode()
    assert contents(tmp_path / "list.txt") == contents(tmp_path / "list.parquet") == sorted(keys)
    assert contents("s3://b/d/list") == contents(odd.url.format("d/list")) == sorted(ODD)
    assert contents("s3://b/d/q?1.jpg") == ["d/q?1.jpg"] and contents("s3://b/d/q[?]1.jpg") == ["d/q?1.jpg"]


def test_members_of_an_archive_with_a_mark_in_its_name(odd, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(__file__, "a#1?.jpg")
    odd.files["tars/shard#1.tar"] = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "list.txt").write_text("s3://b/tars/shard#1.tar\n")
    (member,) = list_media(str(tmp_path / "list.txt"))
    assert member.media_id == "shard#1.tar/a#1?.jpg" and read_bytes(member) == Path(__file__).read_bytes()
    assert uri_of(member.path).endswith("::s3://b/tars/shard#1.tar")


def test_one_key_in_two_servers_is_two_files(odd, tmp_path):
    with served(Objects(files={"d/x.jpg": b"\0other"})) as other:
        (tmp_path / "list.txt").write_text("\n".join(each.url.format("d/x.jpg") for each in (odd, other)))
        assert contents(tmp_path / "list.txt") == ["d/x.jpg", "other"]
        assert ids(tmp_path / "list.txt") == sorted(f"s3/127.0.0.1:{x.port}/b/d/x.jpg" for x in (odd, other))


def test_entries_that_get_one_name_are_counted(odd, tmp_path):
    (tmp_path / "list.txt").write_text("s3://b/d/x.jpg?region=eu\ns3://b/d/x.jpg\ns3://b/d/x.jpg?region=us-east-1")
    words = []
    assert len(list_media(str(tmp_path / "list.txt"), on_message=words.append)) == 1
    assert len(words) == 1 and " 2 files" in words[0]


def test_a_bucket_has_no_pattern_in_its_name(bucket):
    with fails("FK-INPUT-NO-MATCH", "bucket's name"):
        list_media(bucket.url.format("in/*.jpg").replace("@b/", "@b*/"))


def test_an_output_with_a_mark_in_its_name(odd):
    store = Store("s3://b/out#1%20?")
    store.write("x.json", b"{}")
    assert odd.files["out#1%20?/x.json"] == b"{}" and store.url("x.json") == "s3://b/out#1%20?/x.json"
