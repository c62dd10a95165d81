"""The sizes of pixels that categories are read from."""

SIZES = {"frames": 384, "instances": 1280}
"""Default short side of the pixels.

Frames: JPEG's decoder halves an image at a third to half of the cost where the half is large enough. Difference of a
model's input, in levels of 255, from one made by Pillow's bicubic filter from full size: mean, and mean of the worst
photo, over 21 photos with short sides of 384 to 1,411 px. At 224 2.0 and 8.9, since the bicubic filter is left with a
factor of 1 to 2; at 384 0.21 and 2.6; at 512 0.06 and 0.45. On five photos with a short side of 800 px 0.94 and 3.0 at
224 and at 384, which both read 400 px, and 0.03 and 0.14 at 512, which reads all. Embeddings of the 21 photos by a B/32
with random weights have cosines of 0.9998, 0.99997 and 1.0000 at least; trained weights were not at hand. So 384: a
short side of 768 px and more is read at half or less.

Instances are parts of an image: at 1280, one of a sixth of the short side still has about the 224 px of the models'
input. Faces are cut from the same column, which is then decoded once for both steps.
"""
