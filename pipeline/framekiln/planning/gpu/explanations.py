"""The reasons for a layout on the GPU, in sentences for `framekiln plan`."""

from collections.abc import Sequence

from framekiln.planning.gpu.calibration_file import Calibration
from framekiln.planning.gpu.co_location import GpuCapacity, WaveLayout
from framekiln.planning.gpu.packing import Layout
from framekiln.planning.gpu.requirements import Requirement
from framekiln.planning.step import Step

_OTHERS = 3  # layouts that are named beside the chosen one
_TIMES = {1: "once", 2: "twice"}


def too_large(requirements: Sequence[Requirement], capacity: GpuCapacity) -> list[str]:
    """Return a sentence for each step that needs more memory than there is."""
    most = max(0.0, capacity.limit_gb - capacity.context_gb)
    return [
        f"{each.name} asks for {each.options[-1].gb:.3g} GB, and {most:.3g} of {capacity.limit_gb:.3g} GB is all that "
        "one process can have: calls that do not fit are made smaller, and a row that does not fit alone is set aside."
        for each in requirements
        if each.options[-1].gb > most + 1e-9
    ]


def reasons(
    candidates: Sequence[Layout], capacity: GpuCapacity, calibration: Calibration | None, steps: Sequence[Step]
) -> list[str]:
    """Return the reasons for the first of some layouts."""
    best, *others = candidates
    return [
        *_tell_source(calibration, steps),
        _tell_layout(best, capacity),
        *_tell_bottlenecks(best, capacity),
        *_tell_others(best, others, capacity),
    ]


def _tell_source(calibration: Calibration | None, steps: Sequence[Step]) -> list[str]:
    if calibration is None:
        return []
    sentences = [f"By the calibration of {calibration.device}, {calibration.made[:10]}; rates are estimates."]
    found = [(step, calibration.of(step)) for step in steps]
    if missing := [step.name for step, figures in found if figures is None]:
        sentences.append(f"It has no figures of {', '.join(missing)} with these settings, so rates are not compared.")
    for step, figures in found:
        if figures is not None and figures.unseen:
            kinds, gb = " and ".join(figures.unseen), step.placement.vram_gb
            got = f"it gets the profile's {gb:.3g} GB" if gb else "it gets what it took without"
            sentences.append(
                f"There were no {kinds} where {step.name} was calibrated: {got}, and the rate is of rows without."
            )
    return sentences


def _tell_layout(best: Layout, capacity: GpuCapacity) -> str:
    count = len(best.waves)
    waves = " | ".join(_tell_wave(wave, capacity) for wave in best.waves)
    rate = best.rate(capacity)
    estimate = f"; an estimate of {rate:.3g} rows/s for {capacity.rows:,} rows" if rate else ""
    if count == 1:
        return f"The GPU holds all its models together: {waves}{estimate}."
    return f"The first pass goes over the media {_TIMES.get(count, f'{count} times')}: {waves}{estimate}."


def _tell_wave(wave: WaveLayout, capacity: GpuCapacity) -> str:
    processes = " and ".join(" + ".join(names) for names in wave.processes)
    contexts = sum(max(each.workers for each in wave.members if each.name in names) for names in wave.processes)
    shared = f"{capacity.context_gb * contexts:.2g} of it for {contexts} process{'es' if contexts > 1 else ''}"
    return f"{processes} ({wave.gb:.3g} of {capacity.limit_gb:.3g} GB, {shared})"


def _tell_bottlenecks(best: Layout, capacity: GpuCapacity) -> list[str]:
    sentences = []
    for wave in best.waves:
        if (limits := wave.limits(capacity)) is None:
            continue
        slowest = max(limits, key=lambda name: limits[name])
        batches = ", ".join(_tell_batch(member) for member in wave.members)
        sentences.append(f"{batches}: {slowest} holds this wave to {1 / max(limits[slowest], 1e-12):.3g} rows/s.")
    return sentences


def _tell_batch(member: Requirement) -> str:
    workers = f", {member.workers} workers" if member.workers > 1 else ""
    fastest = member.options[0]
    less = f" instead of {fastest.batch}" if fastest.batch != member.option.batch else ""
    return f"{member.name} in batches of {member.option.batch}{less} ({member.option.gb:.3g} GB{workers})"


def _tell_others(best: Layout, others: Sequence[Layout], capacity: GpuCapacity) -> list[str]:
    """Return other layouts by their estimates; without rates, the reason for other processes than the profile's."""
    rate = best.rate(capacity)
    if rate is not None:
        first = {len(each.waves): each for each in reversed(others)}  # the best for each number of waves
        sentences = []
        for layout in (first[count] for count in sorted(first)[:_OTHERS]):
            shape = " | ".join(" and ".join(" + ".join(names) for names in wave.processes) for wave in layout.waves)
            other = layout.rate(capacity) or 0.0
            sentences.append(f"Instead, {shape}: {other:.3g} rows/s ({round(100 * other / rate - 100):+} %).")
        return sentences
    if best.departures:
        return ["Processes are others than the profile's, which would not fit; each process has a context of its own."]
    return []
