"""Agreement of two runs' categories, of images or of instances."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framekiln_stages.shared.result_agreement import (
    Detections,
    cosine_figures,
    cosine_similarities,
    equal_share,
    float_values,
    match_by_boxes,
    mean_distance,
    mean_or,
    vectors_in_both,
)


def result_agreement(a: pa.Table, b: pa.Table) -> dict[str, float]:
    """Return the share of images, or matched instances, with equal likeliest category, and embedding cosines."""
    if "instances" in a.column_names:
        return _instance_agreement(*(Detections.from_column(run["instances"]) for run in (a, b)))
    same = equal_share(a["category"], b["category"])
    off = mean_distance(*(float_values(run["category_probability"]) for run in (a, b)))
    figures = {"category_agreement": same, "probability_difference": off, "drift": 1 - same}
    if "clip_embedding" not in a.column_names:
        return figures
    cosines = cosine_similarities(*vectors_in_both(a["clip_embedding"], b["clip_embedding"]))
    return figures | cosine_figures(cosines)


def _instance_agreement(first: Detections, second: Detections) -> dict[str, float]:
    matches = match_by_boxes(first, second)
    names = [pc.struct_field(run.values, "category").to_pylist() for run in (first, second)]
    equal = [names[0][i] == names[1][j] for i, j in zip(matches.first, matches.second, strict=True)]
    share = mean_or(1.0, np.array(equal))
    return {"instances_found": matches.share, "category_agreement": share, "drift": 1 - matches.share * share}
