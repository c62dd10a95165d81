"""Objects followed through a video: prompted in one frame, with a mask and one number in every later frame."""

from framekiln_stages.objects.stage import Objects as Objects
