"""Weights of LaMa: any common prefix is accepted, and those of another network are refused by name."""

from __future__ import annotations

import pytest
import torch

from framekiln_stages.nets.lama.network import Generator, Sizes, assign_weights

SMALL = Sizes(width=8, blocks=2)


@pytest.mark.parametrize("prefix", ["", "model.", "generator.", "model.generator."])
def test_any_common_prefix_is_accepted(prefix):
    wanted = Generator(SMALL).state_dict()
    with torch.device("meta"):
        net = Generator(SMALL)
    assign_weights(net, {prefix + name: tensor for name, tensor in wanted.items()}, "x.pt")
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in net.state_dict().items())


def test_weights_of_another_network_are_refused_by_name():
    wanted = Generator(SMALL).state_dict()
    name = "model.5.conv1.ffc.convg2g.fu.conv_layer.weight"
    assert name in wanted
    faulty = {
        f'Missing key.* "{name}"': {key: value for key, value in wanted.items() if key != name},
        'Unexpected key.* "model.99.weight"': {**wanted, "model.99.weight": torch.zeros(1)},
        f"size mismatch for {name}": {**wanted, name: torch.zeros(3)},
    }
    for message, state in faulty.items():
        with pytest.raises(ValueError, match=rf"odd\.pt .*{message}"):
            assign_weights(Generator(SMALL), {f"model.{key}": value for key, value in state.items()}, "odd.pt")
    with pytest.raises(ValueError, match=r"odd\.pt"):
        assign_weights(Generator(SMALL), {}, "odd.pt")
