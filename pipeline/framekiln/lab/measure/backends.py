"""Backends by name, and a model's call in each. A missing package or a failed export is unsupported, with the reason.

torch          PyTorch, eager or compiled
onnxruntime    exported by torch.onnx, which needs onnxscript; inputs and outputs stay on the device
torchscript    a trace, deprecated in PyTorch
tensorrt       by torch_tensorrt, in the precision that the weights were cast to
"""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framekiln.device import torch
from framekiln.lab.measure.precision import check_cast
from framekiln.lab.modules import UnsupportedError, map_tensors, tensors_in
from framekiln.lab.output.cells import Cell

BACKENDS = ("torch", "onnxruntime", "torchscript", "tensorrt")

_PACKAGES = {
    "onnxruntime": {"onnxruntime": "onnxruntime", "onnxscript": "'framekiln[bench]'"},
    "tensorrt": {"torch_tensorrt": "torch-tensorrt"},
}

ModelCall = Callable[[], Any]


def backend_call(cell: Cell, module: Any, inputs: Any, run: Callable[[Any, Any], Any], device: str) -> ModelCall:
    """Return a call of a model in another runtime, on its device, in the cell's precision, with its own tensors.

    `inputs` are read again in each call. `run` calls a module on inputs of its own form. Raises UnsupportedError: a
    package is missing, or the model does not export.
    """
    _check(cell, device)
    built: Any
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracers warn of constants; the module's docstring names deprecations
            graph, tensors = _make_graph(module, inputs, run)
            if cell.backend == "onnxruntime":
                return _export_onnx(graph, tensors, device)
            if cell.backend == "tensorrt":
                built = importlib.import_module("torch_tensorrt").compile(graph, ir="dynamo", inputs=tensors)
            else:
                trace: Any = torch.jit.trace
                built = torch.jit.freeze(trace(graph, tuple(tensors), check_trace=False))
            return lambda: built(*tensors)
    except UnsupportedError:
        raise
    except Exception as error:  # exporters raise errors of all classes
        first = (str(error).strip().splitlines() or [""])[0][:200]
        problem = f"its graph does not export to {cell.backend} ({type(error).__name__}: {first})"
        raise UnsupportedError(problem) from error


def _check(cell: Cell, device: str) -> None:
    name = cell.backend
    for package, source in _PACKAGES.get(name, {}).items():
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(f"{package} is not installed: pip install {source}")
    check_cast(cell.precision, name)
    if cell.compile != "off":
        raise UnsupportedError(f"torch.compile does not apply to {name}")
    if name == "tensorrt" and device == "cpu":
        raise UnsupportedError("TensorRT needs a GPU of NVIDIA")


def _export_onnx(graph: torch.nn.Module, tensors: list[torch.Tensor], device: str) -> ModelCall:
    """Export a graph and bind its inputs and outputs to torch's tensors, so that nothing is copied."""
    import onnxruntime

    provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UnsupportedError(f"onnxruntime has no {provider}: pip install onnxruntime-gpu")
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise UnsupportedError("onnxruntime reads inputs in their plain order only, not channels last")
    options = {"user_compute_stream": str(torch.cuda.current_stream().cuda_stream)} if device != "cpu" else {}
    results = [torch.empty_like(tensor).contiguous() for tensor in tensors_in(graph(*tensors))]
    with tempfile.TemporaryDirectory() as folder:  # large models keep weights in a file beside the graph
        path = Path(folder) / "model.onnx"
        exported: Any = torch.onnx.export(graph, tuple(tensors), dynamo=True, verbose=False)
        exported.save(str(path))
        session = onnxruntime.InferenceSession(str(path), providers=[(provider, options)])
    binding = session.io_binding()
    named = {item.name: item for item in session.get_inputs()}
    for name, tensor in zip(exported.model.graph.inputs, tensors, strict=True):
        if name.name in named:  # inputs without effect on outputs are left out
            _bind(binding.bind_input, name.name, tensor)
    for item, tensor in zip(session.get_outputs(), results, strict=True):
        _bind(binding.bind_output, item.name, tensor)

    def call() -> list[torch.Tensor]:
        session.run_with_iobinding(binding)
        return results

    return call


def _bind(bind: Callable[..., None], name: str, tensor: torch.Tensor) -> None:
    kind: Any = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    bind(name, tensor.device.type, tensor.device.index or 0, kind, tuple(tensor.shape), tensor.data_ptr())


def _make_graph(module: Any, inputs: Any, run: Callable[[Any, Any], Any]) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """Return a module from tensors to a tuple of tensors, and the inputs' tensors; other inputs become constants."""

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = iter(tensors)
            return tuple(tensors_in(run(self.module, map_tensors(inputs, lambda _: next(given)))))

    return Graph().eval(), tensors_in(inputs)
