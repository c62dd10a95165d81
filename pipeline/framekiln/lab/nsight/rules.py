"""Findings in recordings of Nsight's tools. Each limit is a first setting, as in guides to profiling."""

from collections.abc import Iterator, Sequence

from framekiln.lab.nsight.reports import GAP_US, SMALL_US, KernelFigures, SystemsFigures
from framekiln.lab.output.results import Finding

IDLE = 0.2  # share of the span: guides ask for 80 % use of the GPU
COPYING = 0.1  # share of the span in copies between host and device
LAUNCHING = 1.0  # time in launches as a multiple of the busy time: from here on the host is the limit
SMALL = 0.5  # share of kernels below SMALL_US
NEAR_PEAK = 60.0  # percent of a peak, from which Nsight Compute's own rules call a kernel well used
OCCUPANCY = 30.0  # percent of warps, below which latency is hardly hidden
TENSOR = 10.0  # percent of tensor cores, below which a kernel does its arithmetic elsewhere
COALESCED = 50.0  # percent of the bytes of a sector: below it more than half of the traffic serves nobody


def systems_findings(where: str, figures: SystemsFigures) -> Iterator[Finding]:
    """Yield what a recording of nsys shows."""
    idle = figures.idle_share
    if idle > IDLE:
        text = (
            f"the GPU is idle for {idle:.0%} of {figures.span_ms:,.1f} ms: {figures.gaps} pauses above {GAP_US:g} us "
            f"take {figures.gaps_ms:,.1f} ms, the longest {figures.longest_gap_ms:,.2f} ms"
        )
        fix = "look for synchronisations (.item(), .cpu()) and work of the host between kernels; use a larger batch"
        yield Finding(rule="GPU idle", where=where, text=text, fix=fix, numbers={"idle_share": idle})
    if figures.busy_ms and figures.launch_ms >= LAUNCHING * figures.busy_ms:
        text = f"{figures.launches} launches take the host {figures.launch_ms:,.1f} ms, the GPU {figures.busy_ms:,.1f}"
        fix = "use --compile reduce-overhead (CUDA graphs), or a larger batch"
        numbers = {"launch_ms": figures.launch_ms, "busy_ms": figures.busy_ms}
        yield Finding(rule="launch overhead", where=where, text=text, fix=fix, numbers=numbers)
    if figures.kernels and figures.small_kernels > SMALL * figures.kernels:
        share = figures.small_kernels / figures.kernels
        text = f"{share:.0%} of {figures.kernels} kernels take less than {SMALL_US:g} us"
        fix = "fuse them by --compile default, or give each more work by a larger batch"
        yield Finding(rule="small kernels", where=where, text=text, fix=fix, numbers={"share": share})
    for direction, copies in figures.copies.items():
        share = copies.ms / figures.span_ms if figures.span_ms else 0.0
        if direction != "device to device" and share > COPYING:
            rate = copies.megabytes / copies.ms if copies.ms else 0.0
            text = f"{copies.count} copies {direction} take {share:.0%} of the time, at {rate:,.1f} GB/s"
            fix = "keep tensors on the device, copy from pinned memory, and copy beside kernels in another stream"
            yield Finding(rule="copies", where=where, text=text, fix=fix, numbers={"share": share, "gb_s": rate})


def compute_findings(where: str, kernels: Sequence[KernelFigures]) -> Iterator[Finding]:
    """Yield the limit of the slowest kernel that ncu recorded, and what else its figures show."""
    timed = [kernel for kernel in kernels if kernel.us is not None]
    if not timed:
        return
    slow = max(timed, key=lambda kernel: kernel.us or 0.0)
    yield _limit(where, slow)
    if slow.sector_percent is not None and slow.sector_percent < COALESCED:
        text = f"{slow.name[:80]} uses {slow.sector_percent:.0f} % of the bytes that it moves from or to global memory"
        fix = "let neighbouring threads take neighbouring values: contiguous tensors, channels last, no strided slices"
        numbers = {"sector_percent": slow.sector_percent}
        yield Finding(rule="scattered access", where=where, text=text, fix=fix, numbers=numbers)


def _limit(where: str, slow: KernelFigures) -> Finding:
    compute, memory = slow.compute_percent or 0.0, slow.memory_percent or 0.0
    text = f"{slow.name[:80]} ({slow.us:,.1f} us) reaches {compute:.0f} % of arithmetic and {memory:.0f} % of memory"
    numbers = {"us": slow.us or 0.0, "compute_percent": compute, "memory_percent": memory}
    if max(compute, memory) < NEAR_PEAK:
        rule, fix = "kernel bound by latency", "give it more work: a larger batch, or fused with its neighbours"
        if slow.occupancy_percent is not None and slow.occupancy_percent < OCCUPANCY:
            fix += f"; only {slow.occupancy_percent:.0f} % of the warps are active"
    elif memory >= compute:
        rule, fix = "kernel bound by memory", "use a 16-bit type, fuse it by --compile, or channels last"
        if slow.l2_hit_percent is not None:
            l1 = "" if slow.l1_hit_percent is None else f" and the L1 cache {slow.l1_hit_percent:.0f} %"
            text += f"; the L2 cache serves {slow.l2_hit_percent:.0f} % of its accesses{l1}"
            numbers["l2_hit_percent"] = slow.l2_hit_percent
    else:
        rule, fix = "kernel bound by arithmetic", "use tensor cores: tf32, bf16 or fp16"
        if slow.tensor_percent is not None:
            text += f"; its tensor cores are used {slow.tensor_percent:.0f} %"
            numbers["tensor_percent"] = slow.tensor_percent
            if slow.tensor_percent >= TENSOR:
                fix = "it uses tensor cores: only a narrower type, or a smaller model, is faster"
    return Finding(rule=rule, where=where, text=text, fix=fix, numbers=numbers)
