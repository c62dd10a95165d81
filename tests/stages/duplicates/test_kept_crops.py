"""A crop gives way to the picture that shows more at the same scale, whatever is sharper in it."""

from __future__ import annotations

from tests.stages.duplicates.test_duplicates import crop, find, jpeg, resize
from tests.support.media.photos import photo


def test_a_picture_is_kept_before_its_crop_unless_it_has_lost_detail():
    image = photo("china.jpg")
    part = crop(image, 0.03, 0.08)
    twins = {"a": part, "b": jpeg(part, 90), "whole": image}  # all crops, also those of one hash

    def kept(images, **figures):
        return [(row["media_id"], row["reason"]) for row in find(images, **figures) if row["keep"]]

    assert kept(twins, sharpness=[450, 440, 400], noise=[1.0, 1.0, 3.0]) == [("whole", "whole")]
    enlarged = {"a": resize(part, 1 / 0.9, 1 / 0.9), "whole": image}
    assert kept(enlarged, sharpness=[400, 400], noise=[1.0, 3.0]) == [("whole", "whole")]
    assert kept({"a": part, "whole": image}, sharpness=[400, 200]) == [("a", "sharper")]  # it was enlarged
    assert kept({"a": part, "whole": image}, blockiness=[0.1, 2.0]) == [("a", "cleaner")]
    assert kept({"a": part, "whole": resize(image, 0.7, 0.7)}, sharpness=[400, 300]) == [("a", "sharper")]
