"""Opening and shape of each mouth in an image, for comparison with speech."""

from stages.mouth.stage import Mouth as Mouth
