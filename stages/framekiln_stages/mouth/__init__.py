"""Opening and shape of each mouth in an image, for comparison with speech."""

from framekiln_stages.mouth.stage import Mouth as Mouth
