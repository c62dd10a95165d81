"""ONNX Runtime sessions."""

from pathlib import Path
from typing import Any

CPU, GPU = "CPUExecutionProvider", "CUDAExecutionProvider"
ERRORS_ONLY = 3  # severity: constant folding otherwise warns of each constant


def open_session(path: Path, *, threads: int = 1, gpu: bool = False) -> Any:
    """Open a session on the CPU, or on a GPU if onnxruntime was built for one.

    Raises ValueError: onnxruntime refuses the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = ERRORS_ONLY
    providers = [GPU, CPU] if gpu and GPU in onnxruntime.get_available_providers() else [CPU]
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # its errors have no common base class
        raise ValueError(f"onnxruntime cannot use {path.name}: {error}") from error
