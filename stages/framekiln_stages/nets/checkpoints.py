"""Networks from files of weights, without a configuration file: for torch, transformers and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from framekiln.device import seeded, torch

if TYPE_CHECKING:
    N = TypeVar("N", bound=torch.nn.Module)


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a file of safetensors or of a pickle; code in a pickle is not run."""
    from safetensors.torch import load_file

    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":  # a header in JSON after its length in eight bytes, by the format's specification
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def assign_state(net: N, state: Mapping[str, torch.Tensor], *, model: str, file: str) -> N:
    """Assign tensors to a network, which may be on the meta device, and return it for inference.

    Raises ValueError: weights are missing, unexpected or of another shape.
    """
    try:
        net.load_state_dict(state, assign=True)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{file} is not {model}: {' '.join(str(error).split())[:300]}") from error
    return net.eval()


def load_model(
    model_class: Any,
    config: Any,
    state: Mapping[str, torch.Tensor] | None,
    *,
    model: str,
    file: str = "the file",
    extra_weights: bool = False,
    **options: Any,
) -> Any:
    """Build a model of transformers in float32, for inference on the CPU.

    Args:
        model_class: of transformers.
        config: its configuration.
        state: tensors by name; None for seeded random weights.
        model: its name, for messages.
        file: name of the file, for messages.
        extra_weights: ignore weights that the model does not have.
        options: further arguments of `from_pretrained`.

    Raises:
        ValueError: weights are missing or unexpected; the message has the first three names.
        RuntimeError: a weight has another shape.
    """
    from transformers.utils import logging

    if state is None:
        with seeded():
            return model_class(config).eval().requires_grad_(False)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    loaded, report = model_class.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True, **options
    )
    missing, unexpected = sorted(report["missing_keys"]), sorted(() if extra_weights else report["unexpected_keys"])
    if missing or unexpected:
        raise ValueError(f"{file} is not {model}: missing weights {missing[:3]}, unexpected ones {unexpected[:3]}")
    return loaded.eval().requires_grad_(False)


CPU, GPU = "CPUExecutionProvider", "CUDAExecutionProvider"
ERRORS_ONLY = 3  # severity: otherwise constant folding warns of each constant


def open_session(path: Path, *, threads: int = 1, gpu: bool = False) -> Any:
    """Open a session on the CPU, or on a GPU if onnxruntime was built for one.

    Raises ValueError: onnxruntime rejects the file.
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
