"""LaMa's weights from the published TorchScript file."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from framekiln.device import seeded
from framekiln_stages.nets.checkpoints import assign_state
from framekiln_stages.nets.lama.network import Generator, Sizes

COUNTERS = "num_batches_tracked"  # of training; files may lack them, and torch then sets them to 0


def load_generator(path: Path | None, sizes: Sizes | None = None) -> Generator:
    """Build the network with a file's weights, or with seeded random ones.

    Raises:
        ValueError: the file is not TorchScript, or its weights are another network's.
    """
    if path is None:
        with seeded():
            return Generator(sizes).eval()
    with torch.device("meta"):
        net = Generator(sizes)
    return assign_weights(net, load_script(path).state_dict(), path.name)


def load_script(path: Path) -> torch.jit.ScriptModule:
    """Load a TorchScript file on the CPU.

    Raises:
        ValueError: the file is not TorchScript.
    """
    try:
        return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{path.name} is not a TorchScript file: {str(error).splitlines()[0]}") from error


def assign_weights(net: Generator, state: Mapping[str, Tensor], file: str) -> Generator:
    """Assign a file's weights to the network, whatever the common prefix of their names in the file.

    Raises:
        ValueError: weights are missing, unexpected or of another shape.
    """
    first = next(iter(net.state_dict()))
    prefix = next((name.removesuffix(first) for name in state if f".{name}".endswith(f".{first}")), "")
    own = {name.removeprefix(prefix): tensor for name, tensor in state.items() if not name.endswith(COUNTERS)}
    return assign_state(net, {name: tensor.float() for name, tensor in own.items()}, model="big-lama", file=file)
