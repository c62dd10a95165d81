"""A fuzz target: damaged photos and films are decoded in a child process, and none may break what decoding promises.

    python -m tests.faults.fuzz.fuzz_media FOLDER --minutes 20 [--seed 0]      go on where the folder's last run stopped
    python -m tests.faults.fuzz.fuzz_media FOLDER --input 4711                 one input again

Input N follows from the seed and N alone (but for the date in a moving AVIF). A finding lies in FOLDER/findings: the
file, and what was wrong. Promised are rows or at least one failure for every file, each row once and well-formed, the
same result from the same bytes, and bounds on memory and time; nothing raised, no death, no hang.
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

from framekiln.contract.columns import views
from framekiln.device.watchdog import within
from framekiln.media.archives import with_members
from framekiln.media.config import DecodeConfig
from framekiln.media.files import MediaFile
from framekiln.media.packets.decode import decode, use_one_thread
from framekiln.media.units import Unit
from tests.faults.fuzz.arguments import read_arguments
from tests.faults.fuzz.mutations import damaged
from tests.faults.fuzz.seeds import seeds
from tests.support.machine.memory import peak_mb

CONFIG = DecodeConfig(
    max_pixels=2_000_000, packet_bytes=16 << 20, segment_frames=5, segment_pixels=1
)  # films are cut in many
MORE_MB = 200  # above the libraries: a picture of 2 MP in RGBA, RGB and floats, and two packets
CPU_SECONDS = 10.0
HANGS_AFTER = 120.0  # s on the clock, of a machine that may be busy
ADDRESSES = 8 << 30  # bytes that the child may map, so that a finding does not cost the machine
_RENEWED = 2000  # inputs of one child
_COLUMNS = ("frame", "frame_224", "sound")


class BrokenError(Exception):
    """A promise that was not kept."""


def outcome(*media: MediaFile) -> tuple[str, int, list[str]]:
    """Decode files; return a digest of its rows, their number, and the kind and message of each failure.

    Raises:
        BrokenError: rows or failures are not as promised.
    """
    digest, rows, messages, seen = hashlib.blake2b(digest_size=8), 0, [], set()
    for packet in decode(Unit(name="u", media=media), _COLUMNS, 1, CONFIG):
        messages += [f"{failure.frame_index} {failure.kind}: {failure.message}" for failure in packet.failures]
        if any(not failure.message or not failure.message.isprintable() for failure in packet.failures):
            raise BrokenError(f"a message is empty or has several lines: {messages}")
        table = packet.rows
        for name in _COLUMNS[:2]:
            for image in views(table[name]):
                digest.update(image)
        digest.update(repr(table.drop_columns(["frame", "frame_224"]).to_pydict()).encode())
        for row in table.select(["media_id", "frame_index", "halo", "time_s", "fps"]).to_pylist():
            if not all(math.isfinite(row[name] or 0.0) for name in ("time_s", "fps")):
                raise BrokenError(f"a time or rate is not finite: {row}")
            key = (row["media_id"], row["frame_index"])
            if not row["halo"] and key in seen:
                raise BrokenError(f"frame {key} comes twice")
            rows += not row["halo"]
            seen |= set() if row["halo"] else {key}
        if packet.stop - packet.start != table["halo"].to_pylist().count(False):
            raise BrokenError(f"{packet.start} to {packet.stop} are not its rows")
    if not rows and not messages:
        raise BrokenError("neither a row nor a failure")
    digest.update(repr(messages).encode())
    return digest.hexdigest(), rows, messages


def check_bytes(data: bytes, path: Path, name: str = "x") -> tuple[int, list[str]]:
    """Decode bytes twice as a file of a name, with all checks; return the number of rows, and the failures.

    Raises:
        BrokenError: something was not as promised.
    """
    path.write_bytes(data)
    file = MediaFile(media_id=name, path=str(path), size=len(data), mtime_ns=time.time_ns())
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is counted anew
    before, started = peak_mb(), time.process_time()
    with within(HANGS_AFTER):
        try:
            media = tuple({item.media_id: item for item in with_members([file])}.values())
            first = outcome(*media)
        except BrokenError:
            raise
        except BaseException as error:
            raise BrokenError("raised: " + "".join(traceback.format_exception(error))) from error
        took, more = time.process_time() - started, peak_mb() - before
        if took > CPU_SECONDS:
            raise BrokenError(f"{took:.1f} s: {first}")
        if more > MORE_MB:
            raise BrokenError(f"{more:.0f} MB: {first}")
        if (second := outcome(*media)) != first:
            raise BrokenError(f"not the same twice: {first} and {second}")
    return first[1], first[2]


def mutated(files: dict[str, bytes], seed: int, number: int) -> tuple[str, bytes]:
    """Name of the file that input `number` comes from, and its bytes."""
    rng, names = Random(f"{seed}:{number}"), sorted(files)
    whole = [name for name in names if not name.startswith("media/")]  # most of the others are broken as they are
    name, other = rng.choice(whole if rng.random() < 0.7 else names), rng.choice(names)
    return name, damaged(files[name], files[other], rng)


def _child(folder: Path, seed: int, first: int, until: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    use_one_thread()
    files, tally = seeds(), {"inputs": 0, "with rows": 0, "broken": 0}
    for number in range(first, first + _RENEWED):
        if time.time() > until:
            break
        name, data = mutated(files, seed, number)
        (folder / "now").write_text(str(number))
        try:
            tally["with rows"] += check_bytes(data, folder / "input", name)[0] > 0
        except BrokenError as error:
            tally["broken"] += 1
            _keep(folder, number, data, f"{name}\n{error}")
        tally["inputs"] += 1
    sys.stdout.write(json.dumps({"next": number + (time.time() <= until), **tally}))


def _keep(folder: Path, number: int, data: bytes, messages: str) -> None:
    (folder / "findings").mkdir(exist_ok=True)
    (folder / "findings" / str(number)).write_bytes(data)
    (folder / "findings" / f"{number}.txt").write_text(messages)


def run(folder: Path, seed: int, minutes: float) -> dict[str, int]:
    """Try inputs for some time, from where the folder's last run stopped; counts of this run."""
    folder.mkdir(parents=True, exist_ok=True)
    state, until = folder / f"next-{seed}", time.time() + 60 * minutes
    total = {"inputs": 0, "with rows": 0, "broken": 0}
    number = int(state.read_text()) if state.exists() else 0
    while time.time() < until:
        command = [sys.executable, "-m", "tests.faults.fuzz.fuzz_media", str(folder)]
        command += ["--seed", str(seed), "--child", str(number), str(until)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            tally_of_child = json.loads(done.stdout)
            number = tally_of_child["next"]
            total = {name: count + tally_of_child[name] for name, count in total.items()}
        else:
            died = int((folder / "now").read_text())
            messages = f"exit code {done.returncode}\n{done.stderr[-4000:]}"
            _keep(folder, died, (folder / "input").read_bytes(), messages)
            total["inputs"], total["broken"] = total["inputs"] + died - number + 1, total["broken"] + 1
            number = died + 1
        state.write_text(str(number))
    return total


def main() -> None:
    """See the module."""
    arguments = read_arguments("Decode damaged media and check what decoding promises.", 10.0)
    if arguments.child:
        _child(arguments.folder, arguments.seed, int(arguments.child[0]), float(arguments.child[1]))
    elif arguments.input is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        name, data = mutated(seeds(), arguments.seed, arguments.input)
        sys.stdout.write(f"{name}: {check_bytes(data, arguments.folder / 'input', name)}\n")
    else:
        total = run(arguments.folder, arguments.seed, arguments.minutes)
        sys.stdout.write(f"{total}; findings in {arguments.folder / 'findings'}\n")
        sys.exit(total["broken"] > 0)


if __name__ == "__main__":
    main()
