"""What tests of sound and lips share: GRID's speakers, whose sound is in step, and the same with their sound moved.

Lips and sound of the clips lie in `grid_speakers.parquet`; tests/README.md says whose they are. Run as a program,
this module writes the file again from the test material.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from framekiln.contract.columns import SOUND
from framekiln.contract.placement import Placement
from framekiln_stages.mouth.stage import Mouth
from framekiln_stages.sync.stage import Sync
from framekiln_stages.voice.stage import Voice
from tests.support.media.material import media, weights
from tests.support.media.media_factory import packets_of

MODEL = "face_landmarker_testdata"
CLIPS = ("bbaf2n", "id2_vcd_swwp2s", "lbax4n", "lrwp9a", "pwij3p", "sbwe5n")
ASIDE = ("lrwp9a", "sbwe5n")  # confidences were fitted on the other four, of three speakers
FRAME = 640  # samples: GRID has 25 frames a second
KEPT = Path(__file__).with_name("grid_speakers.parquet")


@cache
def mouth() -> Mouth:
    stage = Mouth(Mouth.Config(model=MODEL))
    stage.setup({MODEL: weights("face_landmarker_v2_with_blendshapes.task")}, Placement())
    return stage


@cache
def voice() -> Voice:
    stage = Voice()
    stage.setup({}, Placement())
    return stage


def decoded(path: Path) -> pa.Table:
    return pa.concat_tables(packet.rows for packet in packets_of(path, ("frame_512", "sound")))


def seen(path: Path) -> pa.Table:
    """Rows of a film without pixels, with the mouths that the network finds."""
    rows = decoded(path)
    mouths = mouth()(rows.select(["frame_512"]))["mouths"]
    return rows.select(["media_id", "frame_index", "time_s", "sound"]).append_column("mouths", mouths)


def seen_clips() -> pa.Table:
    """What the kept file has, as decoder and network give it."""
    return pa.concat_tables(seen(media(f"av/grid/{name}.mpg")) for name in CLIPS)


@cache
def kept_clips() -> pa.Table:
    return pq.read_table(KEPT)


@cache
def clip(name: str) -> tuple[pa.Table, pa.Table, np.ndarray, np.ndarray]:
    """Rows without pixels, their mouths, all samples, and how many lie with each frame."""
    rows = kept_clips().filter(pc.field("media_id") == f"{name}.mpg")
    sound = rows["sound"].combine_chunks()
    lengths = sound.value_lengths().to_numpy()
    keys = rows.select(["media_id", "frame_index", "time_s"])
    return keys, rows.select(["mouths"]), sound.flatten().to_numpy(), lengths


def moved(samples: np.ndarray, frames: float) -> np.ndarray:
    """The sound later by so many frames, silence in front; of the same length."""
    by = round(frames * FRAME)
    late = np.concatenate([np.zeros(max(by, 0), np.int16), samples[max(-by, 0) :], np.zeros(max(-by, 0), np.int16)])
    return late[: len(samples)]


def spoken(samples: np.ndarray, lengths: np.ndarray) -> pa.Table:
    padded = np.pad(samples, (0, max(int(lengths.sum()) - len(samples), 0)))
    return voice()(pa.table({"sound": pa.array(np.split(padded[: lengths.sum()], np.cumsum(lengths)[:-1]), SOUND)}))


@cache
def heard(name: str, frames: float = 0) -> pa.Table:
    return spoken(moved(clip(name)[2], frames), clip(name)[3])


def table_of(name: str, sound: pa.Table, mouths: pa.Table | None = None) -> pa.Table:
    rows, own, _, _ = clip(name)
    both = [*rows.columns, (mouths or own)["mouths"], sound["voice"]]
    return pa.table(both, names=[*rows.column_names, "mouths", "voice"])


def shots(*starts: int) -> dict[str, pa.Table]:
    """Table `shots`, as far as it is read."""
    numbers = {"shot": pa.array(range(len(starts)), pa.int32()), "first_frame": pa.array(starts, pa.int32())}
    return {"shots": pa.table(numbers)}


def judge(table: pa.Table, *cuts: int, **config) -> dict:
    (row,) = Sync(Sync.Config(**config))(table, shots(0, *cuts))["sync"].to_pylist()
    return row


def joined(
    *parts: tuple[str, int, int], shifts: tuple[float, ...] = (0, 0), heard_of: tuple[str, ...] = ()
) -> pa.Table:
    """Lips of runs of frames (clip, first, count) after each other, and whole clips' sound, each later by its shift."""
    mouths = pa.concat_tables([clip(name)[1].slice(first, count) for name, first, count in parts])
    names = heard_of or tuple(name for name, _, _ in parts)
    samples = np.concatenate([moved(clip(name)[2], by) for name, by in zip(names, shifts, strict=False)])
    sound = spoken(samples, np.concatenate([clip(name)[3] for name in names]))
    count = len(mouths)
    keys = {
        "media_id": ["a"] * count,
        "frame_index": pa.array(range(count), pa.int32()),
        "time_s": np.arange(count) / 25,
    }
    return pa.table(keys | {"mouths": mouths["mouths"], "voice": sound["voice"].slice(0, count)})


def paused(name: str, sound_of: str, frames: int, by: int = 0) -> pa.Table:
    """One's lips and another's sound, later by `by` frames, between so many frames of closed lips and room noise."""
    lips = clip(name)[1]["mouths"].to_pylist()
    still, after = ([part[min(i % 16, 16 - i % 16)] for i in range(frames)] for part in (lips[:9], lips[-9:]))
    sound = clip(sound_of)[2][: FRAME * 75]
    count = 2 * frames + len(lips)
    samples = np.resize(np.concatenate([sound[: 7 * FRAME], sound[7 * FRAME :: -1]]), FRAME * count)
    start = FRAME * (frames + by)
    samples[start : start + len(sound)] = sound[: len(samples) - start]
    return pa.table(
        {
            "media_id": ["a"] * count,
            "frame_index": pa.array(range(count), pa.int32()),
            "time_s": np.arange(count) / 25,
            "mouths": pa.array([*still, *lips, *after], clip(name)[1]["mouths"].type),
            "voice": spoken(samples, np.full(count, FRAME))["voice"],
        }
    )


if __name__ == "__main__":
    packed = {"column_encoding": {"sound.list.element": "DELTA_BINARY_PACKED"}, "use_dictionary": ["media_id"]}
    pq.write_table(seen_clips(), KEPT, compression="zstd", compression_level=19, **packed)
    print(f"{KEPT}: {KEPT.stat().st_size} bytes")
