"""Pixels and models on their device; the only package of `pipeline/` that imports torch.

    preprocessing  ->  the stage's model, prepared by `model.ready`

The driver plans without torch, so modules that it imports take it from here: `lazy`.
"""

from framekiln.device.call_scheduler import CallScheduler as CallScheduler
from framekiln.device.compiled import take_failures as take_failures
from framekiln.device.failures import (
    is_broken_gpu as is_broken_gpu,
    is_end_of_process as is_end_of_process,
    is_out_of_memory as is_out_of_memory,
    mark_interrupts as mark_interrupts,
    message_of as message_of,
    release_memory as release_memory,
)
from framekiln.device.flops import (
    flops_by_module as flops_by_module,
    flops_of as flops_of,
    modules_of as modules_of,
    traffic_of as traffic_of,
    weights_bytes as weights_bytes,
)
from framekiln.device.kernels import CountedCall as CountedCall, count_call as count_call, made_weights as made_weights
from framekiln.device.lazy import torch as torch
from framekiln.device.model import (
    Batches as Batches,
    configure_gpu as configure_gpu,
    counted_calls as counted_calls,
    counting as counting,
    device_name as device_name,
    dtype_of as dtype_of,
    limit_memory as limit_memory,
    ready as ready,
    recorded_calls as recorded_calls,
    seeded as seeded,
    summed as summed,
    type_of as type_of,
    wait as wait,
)
from framekiln.device.preprocessing import (
    LONGEST as LONGEST,
    Phase as Phase,
    in_order as in_order,
    indices_by_key as indices_by_key,
    middle as middle,
    normalized as normalized,
    prepare as prepare,
    untimed as untimed,
    upload as upload,
    upload_all as upload_all,
)
from framekiln.device.resizing import Preparation as Preparation, fit_mixed as fit_mixed
from framekiln.device.streams import keep_while_used as keep_while_used, watch_gpu as watch_gpu
from framekiln.device.timing import (
    DeviceMemory as DeviceMemory,
    Meter as Meter,
    clock_of as clock_of,
    memory_gb as memory_gb,
)
