"""Zero-shot categories of images, or of the instances in them, by CLIP or SigLIP2."""

from framekiln_stages.categorize.stage import Categorize as Categorize
