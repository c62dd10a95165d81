"""Features of speech in the sound of each frame: loudness, two bands and harmonicity."""

from framekiln_stages.voice.stage import Voice as Voice
