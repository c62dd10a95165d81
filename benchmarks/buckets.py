"""Photos of a bucket and of a web server decoded by one process, and a list of URLs until it is ready.

    python -m benchmarks.buckets [--photos 400] [--delay 0.025] [--entries 2000]

Beside the photos 16 threads only read them. Beside the list, some of its entries are looked up in turn.

A server on this machine speaks as much S3 as Arrow needs, and waits before each answer. Its processor time is on the
same cores. The photos are JPEGs of 0.1 MP, so that a core could decode more of them than the answers let through.
`disk` is the same decoding of local copies.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from framekiln.media.config import DecodeConfig
from framekiln.media.discovery.listing import list_media
from framekiln.media.files import MediaFile, connect, read_bytes
from framekiln.media.network import Network
from framekiln.media.packets.decode import decode
from framekiln.media.samples import photos
from framekiln.media.units import form_units

WIDTH, HEIGHT, THREADS, IN_TURN = 400, 250, 16, 100


def write_photos(folder: Path, count: int) -> None:
    """Write JPEGs of different content."""
    scene = np.asarray(cv2.imread(str(photos()["china.jpg"])))
    for number in range(count):
        top, left = number % 150, number % 200
        cv2.imwrite(str(folder / f"{number:05}.jpg"), scene[top : top + HEIGHT, left : left + WIDTH])


@contextmanager
def store(folder: Path, delay: float) -> Iterator[str]:
    """Serve a folder in another process; the URL of a key of its bucket, with {} for the key."""
    command = [sys.executable, "-m", "tests.support.machine.object_server", str(folder), "--delay", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def read_only(media: list[MediaFile]) -> float:
    """Return the files a second that threads read."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        sum(len(content) for content in pool.map(read_bytes, media))
    return len(media) / (time.perf_counter() - begin)


def decoded(media: list[MediaFile]) -> float:
    """Return the files a second that one process decodes for `frame_224`."""
    begin, rows = time.perf_counter(), 0
    for unit in form_units(media, slots=1):
        rows += sum(packet.rows.num_rows for packet in decode(unit, ("frame_224",), 0, DecodeConfig()))
    assert rows == len(media), rows
    return rows / (time.perf_counter() - begin)


def print_list(folder: Path, url: str, remote: list[MediaFile], entries: int) -> None:
    """Print how long a list of URLs takes until it is ready; `remote`: photos that are looked up in turn."""
    (folder / "list.txt").write_text("\n".join(url.format(f"listed/{number}.jpg") for number in range(entries)))
    begin = time.perf_counter()
    for media in remote[:IN_TURN]:
        system, inner = connect(media.path)
        assert system.get_file_info(inner).size == media.size
    in_turn = (time.perf_counter() - begin) / IN_TURN * entries
    begin = time.perf_counter()
    assert len(list_media(str(folder / "list.txt"))) == entries
    seconds = time.perf_counter() - begin
    print(f"{entries:,} URLs looked up in {seconds:.1f} s; in turn {in_turn:.0f} s, by {IN_TURN} of them")


def main() -> None:
    """Print four rates and a ratio, and the times of a list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--delay", type=float, default=0.025)
    parser.add_argument("--entries", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, listed = Path(name) / "photos", Path(name) / "listed"
        folder.mkdir()
        listed.mkdir()
        write_photos(folder, options.photos)
        for number in range(options.entries):
            (listed / f"{number}.jpg").write_bytes(b"\0")
        local = list(list_media(str(folder)))
        with store(folder.parent, options.delay) as url:
            remote = list(list_media(url.format("photos")))
            print_list(folder, url, remote, options.entries)
            port = url.partition("127.0.0.1:")[2].partition("&")[0]
            web = [replace(each, path=f"http://127.0.0.1:{port}/b/photos/{each.media_id}") for each in remote]
            Network(private_addresses=True).use()
            decoded(local[:40])
            for _ in range(3):
                bare, disk, rate, by_http = read_only(remote), decoded(local), decoded(remote), decoded(web)
                print(
                    f"{bare:.0f} photos/s read by {THREADS} threads, {disk:.0f} decoded from disk, {rate:.0f} from the "
                    f"bucket: {rate / min(bare, disk):.2f} of the slower one; {by_http:.0f} by http",
                    flush=True,
                )


if __name__ == "__main__":
    main()
