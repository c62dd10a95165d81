"""A reference for Segment Anything's automatic mask generator: slow, in plain numpy and loops.

It is written from the published algorithm, not from the stage. It scores masks on the model's own grid, as the stage
does, and drops masks without pixels at full size; everything else is as published. Transformers' network is called as
in its documentation.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cache

import cv2
import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from framekiln_stages.nets.sam2.image import image_config
from tests.support.stages.sam.weights import TOY

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@dataclass
class Settings:
    points_per_side: int = 32
    pred_iou_thresh: float = 0.8
    stability_score_thresh: float = 0.95
    stability_score_offset: float = 1.0
    mask_threshold: float = 0.0
    box_nms_thresh: float = 0.7
    crop_n_layers: int = 0
    crop_nms_thresh: float = 0.7
    crop_overlap_ratio: float = 512 / 1500
    crop_n_points_downscale_factor: int = 1
    min_mask_region_area: int = 0


@dataclass
class Result:
    masks: list = field(default_factory=list)  # h w bool, best first
    scores: list = field(default_factory=list)
    stabilities: list = field(default_factory=list)
    points: list = field(default_factory=list)  # shares of the frame
    dropped: dict = field(default_factory=dict)  # by filter, how many
    judged: dict = field(default_factory=dict)  # by filter, the values it compared with its threshold


@cache
def plain(path):
    """Return transformers' own model with the weights of a file."""
    from transformers import Sam2Model

    model = Sam2Model(image_config(TOY)).eval()
    model.load_state_dict(load_file(path))
    return model


def pixel_values(image, side=1024):
    """Return 1 3 side side, resized by Pillow."""
    small = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR), np.float64)
    return torch.from_numpy(((small / 255 - MEAN) / STD).transpose(2, 0, 1)[None]).float()


def crop_boxes(height, width, layers, overlap_ratio):
    found = [(0, 0, 0, width, height)]
    for layer in range(1, layers + 1):
        n = 2**layer
        overlap = int(overlap_ratio * min(height, width) * (2 / n))
        w = math.ceil((overlap * (n - 1) + width) / n)
        h = math.ceil((overlap * (n - 1) + height) / n)
        for column in range(n):
            for row in range(n):
                x, y = column * (w - overlap), row * (h - overlap)
                found.append((layer, x, y, min(x + w, width), min(y + h, height)))
    return found


def box_of(mask):
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def suppressed(boxes, scores, threshold, judged=None):
    """Return the numbers of the kept boxes, best first."""
    kept = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        overlaps = [overlap(boxes[j], boxes[i]) for j in kept]
        if judged is not None:
            judged += overlaps
        if all(one <= threshold for one in overlaps):
            kept.append(i)
    return kept


def without_small_regions(mask, least):
    """Flood fill from each pixel; return True if the mask changed, and the mask."""
    before = mask.copy()
    for holes in (True, False):
        pixels = (~mask if holes else mask).astype(np.uint8)
        regions, seen = [], np.zeros_like(mask)
        for y, x in np.argwhere(pixels):
            if seen[y, x]:
                continue
            region, stack = [], [(y, x)]
            seen[y, x] = True
            while stack:
                b, a = stack.pop()
                region.append((b, a))
                for d in range(max(b - 1, 0), min(b + 2, mask.shape[0])):
                    for c in range(max(a - 1, 0), min(a + 2, mask.shape[1])):
                        if pixels[d, c] and not seen[d, c]:
                            seen[d, c] = True
                            stack.append((d, c))
            regions.append(region)
        small = [region for region in regions if len(region) < least]
        if not holes and len(small) == len(regions) and regions:
            small.remove(max(regions, key=len))
        mask = mask.copy()
        for region in small:
            mask[tuple(np.array(region).T)] = holes
    return bool((mask != before).any()), mask


def predictor(model, side, prepare=pixel_values):
    """Return a function of an image and n: logits p m s s and scores p m at n by n points."""
    known = {}

    def predict(image, n):
        key = image.tobytes(), image.shape, n
        if key not in known:
            places = [[(column + 0.5) / n * side, (row + 0.5) / n * side] for row in range(n) for column in range(n)]
            with torch.no_grad():
                output = model(pixel_values=prepare(image, side), input_points=torch.tensor([places])[:, :, None])
            known[key] = output.pred_masks[0].numpy(), output.iou_scores[0].numpy()
        return known[key]

    return predict


def generate(predict, image, settings):
    """Return all masks of an image (h w 3 uint8)."""
    height, width = image.shape[:2]
    drop = {"iou": 0, "stability": 0, "empty": 0, "edge": 0, "nms": 0, "crop_nms": 0, "vanished": 0, "cleaned": 0}
    judged = {"logits": [], "iou": [], "stability": [], "edge": [], "nms": [], "crop_nms": []}
    found = []  # of all crops: logits, box, score, stability, point, crop
    for layer, *crop in crop_boxes(height, width, settings.crop_n_layers, settings.crop_overlap_ratio):
        inside = crop_masks(predict, image, settings, layer, crop, drop, judged)
        boxes, scores = [one[1] for one in inside], [one[2] for one in inside]
        kept = suppressed(boxes, scores, settings.box_nms_thresh, judged["nms"])
        drop["nms"] += len(inside) - len(kept)
        found += [inside[i] for i in kept]
    if settings.crop_n_layers:
        scores = [1 / ((x1 - x0) * (y1 - y0)) for *_, (x0, y0, x1, y1) in found]
        kept = sorted(suppressed([one[1] for one in found], scores, settings.crop_nms_thresh, judged["crop_nms"]))
        drop["crop_nms"] += len(found) - len(kept)
        found = [found[i] for i in kept]
    found.sort(key=lambda one: -one[2])
    return finished(found, Result(dropped=drop, judged=judged), (height, width), settings)


def crop_masks(predict, image, settings, layer, crop, drop, judged):
    """Return the masks of the grid over one crop that pass all filters before suppression."""
    (height, width), (x0, y0, x1, y1), inside = image.shape[:2], crop, []
    w, h = x1 - x0, y1 - y0
    n = int(settings.points_per_side / settings.crop_n_points_downscale_factor**layer)
    outputs = predict(np.ascontiguousarray(image[y0:y1, x0:x1]), n)
    judged["logits"].append(outputs[0])
    for row, column in itertools.product(range(n), repeat=2):
        px, py = (column + 0.5) / n, (row + 0.5) / n
        for logits, score in zip(*(part[row * n + column] for part in outputs), strict=True):
            judged["iou"].append(float(score))
            if score <= settings.pred_iou_thresh:
                drop["iou"] += 1
                continue
            union = (logits > settings.mask_threshold - settings.stability_score_offset).sum()
            shared = (logits > settings.mask_threshold + settings.stability_score_offset).sum()
            judged["stability"].append(shared / max(union, 1))
            if union == 0 or shared / union < settings.stability_score_thresh:
                drop["stability"] += 1
                continue
            mask = logits > settings.mask_threshold
            if not mask.any():
                drop["empty"] += 1
                continue
            box = [a + b * c / len(mask) for a, b, c in zip((x0, y0, x0, y0), box_of(mask), (w, h, w, h), strict=True)]
            edges = list(zip(box, (x0, y0, x1, y1), (0, 0, width, height), strict=True))
            judged["edge"] += [abs(b - edge) for b, *ends in edges for edge in ends]
            if any(abs(b - crop_edge) <= 20 < abs(b - frame_edge) for b, crop_edge, frame_edge in edges):
                drop["edge"] += 1
                continue
            point = ((x0 + px * w) / width, (y0 + py * h) / height)
            inside.append((logits, box, score, shared / union, point, (x0, y0, x1, y1)))
    return inside


def finished(found, result, size, settings):
    """Return masks at full size, without small regions."""
    (height, width), drop, changes = size, result.dropped, []
    for logits, _, score, stability, point, (x0, y0, x1, y1) in found:
        mask = np.zeros((height, width), bool)
        mask[y0:y1, x0:x1] = bilinear(logits, y1 - y0, x1 - x0) > settings.mask_threshold
        if not mask.any():
            drop["vanished"] += 1
            continue
        changed, mask = (
            without_small_regions(mask, settings.min_mask_region_area) if settings.min_mask_region_area else (0, mask)
        )
        changes.append(changed)
        for into, value in zip(
            (result.masks, result.scores, result.stabilities, result.points),
            (mask, score, stability, point),
            strict=True,
        ):
            into.append(value)
    if any(changes):
        boxes, scores = [box_of(mask) for mask in result.masks], [float(not one) for one in changes]
        kept = sorted(suppressed(boxes, scores, max(settings.box_nms_thresh, settings.crop_nms_thresh)))
        drop["cleaned"] = len(boxes) - len(kept)
        for name in ("masks", "scores", "stabilities", "points"):
            setattr(result, name, [getattr(result, name)[i] for i in kept])
    return result


def bilinear(logits, height, width):
    """Resize by OpenCV, with the pixel centres of `align_corners=False`."""
    return cv2.resize(logits, (width, height), interpolation=cv2.INTER_LINEAR)
