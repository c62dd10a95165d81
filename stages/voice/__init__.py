"""Features of speech in the sound of each frame: loudness, two bands and harmonicity."""

from stages.voice.stage import Voice as Voice
