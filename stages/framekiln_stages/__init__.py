"""The stages that Framekiln ships: a folder each, with its class in `stage.py`.

`STAGES` maps short names to stages, as in `use: lighting`. Other stages are named `use: module:Class`.
"""

from collections.abc import Mapping

STAGES: Mapping[str, str] = {
    "categorize": "framekiln_stages.categorize:Categorize",
    "duplicates": "framekiln_stages.duplicates:Duplicates",
    "faces": "framekiln_stages.faces:Faces",
    "features": "framekiln_stages.shots:Features",
    "fingerprint": "framekiln_stages.duplicates:Fingerprint",
    "flow": "framekiln_stages.flow:Flow",
    "frozen": "framekiln_stages.quality:Frozen",
    "identities": "framekiln_stages.identities:Identities",
    "inpaint": "framekiln_stages.inpaint:Inpaint",
    "lighting": "framekiln_stages.lighting:Lighting",
    "lighting_steadiness": "framekiln_stages.lighting:Steadiness",
    "metadata": "framekiln_stages.metadata:Metadata",
    "mouth": "framekiln_stages.mouth:Mouth",
    "objects": "framekiln_stages.objects:Objects",
    "pose": "framekiln_stages.pose:Pose",
    "quality": "framekiln_stages.quality:Quality",
    "segment": "framekiln_stages.segment:Segment",
    "shots": "framekiln_stages.shots:Shots",
    "sync": "framekiln_stages.sync:Sync",
    "tracks": "framekiln_stages.tracks:Tracks",
    "voice": "framekiln_stages.voice:Voice",
}
