"""Conventions that several stages share: of coordinates, masks, embeddings and sound; descriptions state them."""

FRACTIONS = "fractions of the image's width and height from its top left corner"
"""Convention of points: x to the right, y downwards."""
BOXES = f"box: x0 left, y0 top, x1 right, y1 bottom, in {FRACTIONS}"
RUN_LENGTHS = (
    "COCO's compressed run lengths: pixels column by column from the top left, background first; size: height, width "
    "of the mask"
)
UNIT_LENGTH = "L2-normalised to length 1, so that a dot product is a cosine"
BODY = (
    "33 landmarks in the order of MediaPipe's PoseLandmark (0 nose, 11 left shoulder, 12 right shoulder, left and "
    f"right as the person's own): x, y in {FRACTIONS}, outside of 0 to 1 where they leave the image; z in widths of "
    "the image, 0 at the hips, negative towards the camera; visibility and presence 0 to 1, the network's"
)
NETWORK = b"network"
"""Key in the metadata of `faces` for the recognition network; embeddings of two networks cannot be compared."""
SOUND_WINDOW = 512
"""Samples of sound whose level and harmonicity `voice` measures: 32 ms hold two periods of the lowest voice."""
