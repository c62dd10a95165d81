"""Shows what another profile changes: speed by step, and whether the results are the same."""

import tempfile
from pathlib import Path

import framekiln
from framekiln.media.samples import make

folder = Path(tempfile.mkdtemp())
make(folder)
clip = folder / "clips" / "pan.mp4"
one_worker = {"decode": {"workers": 1}, "steps": {"flow": {"workers": 1}}}

usual = framekiln.run(clip, "out/usual", stages=["flow"], profile="cpu-only")
single = framekiln.run(clip, "out/single", stages=["flow"], profile=one_worker)
comparison = framekiln.compare(usual, single, fail_if="drift>0.001")
print(comparison.verdicts[0])
for figure in comparison.pairs[0].figures["flow"]:
    print(f"{figure.title:30} {figure.first} {figure.second} {figure.unit}")
print("Results differ" if comparison.failed else "Results agree", "- more in", comparison.save("out/compare.html"))
