"""RAFT is right when the published weights find the published accuracy, and a batch says what each pair says."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from framekiln.contract.errors import ConfigError
from framekiln.contract.placement import Placement
from framekiln.device import take_failures
from framekiln.planning.manifest import ProfileFile
from framekiln.planning.processes.placement import merge_placement
from framekiln.weights.resolver import default_lock
from framekiln_stages.flow.stage import Flow
from framekiln_stages.nets.raft import Flows, Raft, correlations, ends, look_up, padded, places
from tests.support.media.material import weights, where_present
from tests.support.media.photos import photo, take
from tests.support.stages.flow_factory import assert_follows, off, rubberwhale, shifted, table, window

PRINCETON = "raft-small-princeton"


def ready(**config) -> Flow:
    stage = Flow(Flow.Config(backend="raft", model=PRINCETON, **config))
    stage.setup({PRINCETON: weights("raft_small_torchvision.pth")}, Placement())
    return stage


@pytest.fixture(scope="module")
def trained() -> Flow:
    return ready(cache=True)


@pytest.fixture(scope="module", params=["random", *where_present("raft_small_torchvision.pth", "trained")])
def make(request) -> Callable[[], Flow]:
    """Return a function to a stage of random weights, or of trained ones where they are present."""

    def random() -> Flow:
        stage = Flow(Flow.Config(backend="raft", cache=True))
        stage.setup({}, Placement())
        return stage

    return random if request.param == "random" else partial(ready, cache=True)


def test_it_has_as_many_parameters_as_published():
    assert sum(one.numel() for one in Raft().parameters()) == 990_162


@pytest.mark.heavy
# A CPU without AVX-512 needs 25 times as long for bf16: a seventh of the picture.
@pytest.mark.parametrize(("precision", "part"), [("fp32", (0, 0, 388, 584)), ("bf16", (96, 96, 160, 200))])
def test_rubberwhale_is_followed_within_a_third_of_a_pixel(precision, part):
    frames, truth = rubberwhale()
    net = Flows(weights("raft_small_torchvision.pth"), Placement(precision=precision), 1)
    found = net([window(frame, *part) for frame in frames])[0][0]
    assert off(found, window(truth, *part)) <= 0.35


def pairs() -> list[np.ndarray]:
    image = photo("china.jpg")
    return [window(image, x, y, 130, 170) for x, y in ((40, 40), (44, 39), (52, 41), (47, 47))]


@pytest.mark.heavy
def test_pairs_in_a_batch_say_what_they_say_alone(make):
    net = make()._raft
    frames = torch.from_numpy(np.stack(pairs()))
    with torch.inference_mode():
        together, alone = net._encode(frames), torch.cat([net._encode(frames[i : i + 1]) for i in range(4)])
        flows = net._follow(together[:-1], together[1:], frames.shape[1:3])
    apart = [net(pairs()[i : i + 2])[0] for i in range(3)]
    assert (together - alone).abs().max() < 1e-3 and np.abs(flows - np.concatenate(apart)).max() < 1e-3
    assert np.array_equal(net(pairs())[0], np.concatenate(apart))


@pytest.mark.heavy
def test_the_flow_back_is_that_of_the_frames_in_reverse(make):
    net = make()._raft
    assert np.allclose(net(pairs()[:2])[1], net(pairs()[1::-1])[0], atol=1e-3)


@pytest.mark.heavy
def test_each_frame_is_encoded_once(make):
    net, seen = make()._raft, []
    net._net.feature_encoder.register_forward_hook(lambda *call: seen.append(len(call[2])))
    net(pairs())
    assert sum(seen) == 4


@pytest.mark.heavy
def test_the_size_of_the_chunks_does_not_matter(make):
    rows = make()(table(pairs()))
    other = make()
    other.chunk_sizes["pairs"] = 1
    assert other(table(pairs())).equals(rows)


@pytest.mark.parametrize(
    ("dx", "dy"), [(-5, 5), *(pytest.param(*by, marks=pytest.mark.heavy) for by in ((6, 0), (3, -4), (-16, 0)))]
)
def test_a_known_shift_is_found(trained, dx, dy):
    row = shifted(trained, photo("china.jpg")[40:432, 40:612], dx, dy)
    assert_follows(row, dx, dy)


@pytest.mark.heavy
def test_between_two_scenes_there_is_no_motion(trained):
    found = trained(table([*take("china.jpg", 2), *take("flower.jpg", 1)]))["motion_mean"].to_pylist()[:-1]
    assert [value is None for value in found] == [False, True]


def test_frames_of_other_or_no_size_give_nulls():
    stage = Flow(Flow.Config(backend="raft"))
    stage.setup({}, Placement())
    shapes = [(40, 40), (40, 40), (40, 50), (15, 50), (15, 50)]
    frames = [np.zeros((*shape, 3), np.uint8) for shape in shapes]
    batch = table(frames[:2])
    assert [row["motion_agreement"] is None for row in stage(batch).to_pylist()] == [False, True]
    assert stage(table(frames[3:]))["motion_mean"].null_count == 2
    assert stage(batch.slice(0, 0)).num_rows == 0


def test_correlations_are_looked_up_as_the_paper_says():
    """Against sums written out: C(i, j) = <f(i), g(j)> / sqrt(d), halved by means, read bilinearly."""
    generator = np.random.default_rng(0)
    now, then = (generator.normal(size=(1, 5, 16, 24)).astype(np.float32) for _ in "ab")
    pyramid = correlations(torch.from_numpy(now), torch.from_numpy(then))
    at = places(16, 24, torch.device("cpu")) + 0.25
    found = look_up(pyramid, ends(pyramid), at)[0].numpy()
    y, x, level, dx, dy = 7, 9, 1, -1, 2
    coarse = then[0].reshape(5, 8, 2, 12, 2).mean(axis=(2, 4))
    px, py = (x + 0.25) / 2 + dx, (y + 0.25) / 2 + dy
    x0, y0 = math.floor(px), math.floor(py)
    want = sum(
        (now[0, :, y, x] @ coarse[:, y0 + j, x0 + i]) / math.sqrt(5) * abs(1 - i - (px - x0)) * abs(1 - j - (py - y0))
        for i in (0, 1)
        for j in (0, 1)
    )
    assert found[level * 49 + (dx + 3) * 7 + dy + 3, y, x] == pytest.approx(want, abs=1e-4)


def test_looking_up_in_parts_changes_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    now, then = (torch.rand(2, 5, 16, 24, generator=generator) for _ in "ab")
    pyramid, at = correlations(now, then), places(16, 24, torch.device("cpu")).expand(2, -1, -1, -1) + 0.25
    whole = look_up(pyramid, ends(pyramid), at)
    monkeypatch.setattr("framekiln_stages.nets.raft.AT_ONCE", 100)
    assert torch.equal(look_up(pyramid, ends(pyramid), at), whole)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (130, 170), (388, 584), (128, 136)])
def test_pictures_are_continued_to_sides_that_the_network_takes(height, width):
    pixels = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0))
    grown, (top, left) = padded(pixels)
    assert all(side >= 128 and side % 8 == 0 for side in grown.shape[2:])
    assert torch.equal(grown[:, :, top : top + height, left : left + width], pixels)


@pytest.mark.heavy
def test_random_weights_are_the_same_each_time():
    stages = [Flow(Flow.Config(backend="raft")) for _ in range(2)]
    for stage in stages:
        stage.setup({}, Placement())
    frames = table(pairs()[:2])
    assert stages[0](frames).equals(stages[1](frames))


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.pth"
    torch.save({"conv.weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"other\.pth"):
        Flows(path, Placement(), 1)


def test_only_raft_asks_for_weights_and_runs_on_a_gpu():
    raft, dis = Flow(Flow.Config(backend="raft")), Flow()
    assert (raft.weights, dis.weights) == (("raft-small-c-t-v2",), ())
    assert all(name in default_lock() for name in (*raft.weights, PRINCETON))
    assert pickle.loads(pickle.dumps(raft)).config == raft.config
    assert merge_placement("flow", raft, ProfileFile(), {}, "cuda").device == "cuda"
    assert merge_placement("flow", dis, ProfileFile(), {}, "cuda").device != "cuda"
    with pytest.raises(ConfigError) as error:
        merge_placement("flow", dis, ProfileFile(), {"device": "cuda"}, None)
    assert error.value.code == "FK-DEVICE-UNSUPPORTED"


@pytest.mark.heavy
def test_a_compiled_network_is_equal_for_sizes_that_come_again(monkeypatch):
    """Traced as on a GPU, without generating code."""
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    take_failures()
    plain, compiled = (Flows(None, Placement(compile=way), 1) for way in (False, True))
    for image in pairs()[:2], [window(photo("china.jpg"), 9, 9, 128, 128)] * 2, pairs()[1:3]:
        assert np.allclose(compiled(image)[0], plain(image)[0], atol=1e-3)
    assert (take_failures(), counters["stats"]["unique_graphs"]) == ([], 6), "encoders and updates; two sizes"
