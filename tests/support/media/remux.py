"""Films copied packet by packet, as a stream copy does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av

Change = Callable[[av.Packet, int], av.Packet | None]
"""A function from a packet and its number among the copied ones to the packet to write; None leaves it out."""


def remuxed(
    source: Path, path: Path, change: Change = lambda packet, _: packet, *, sound: bool = True, **options: str
) -> Path:
    """Copy a film into another container; `options` are the container's."""
    with av.open(str(source)) as container, av.open(str(path), "w", options=options) as out:
        tracks = container.streams if sound else container.streams.video[:1]
        copies = {track.index: out.add_stream_from_template(track) for track in tracks}
        packets = (packet for packet in container.demux(list(tracks)) if packet.size)
        for number, packet in enumerate(packets):
            track = copies[packet.stream_index]
            if (changed := change(packet, number)) is not None:
                changed.stream = track
                out.mux(changed)
    return path
