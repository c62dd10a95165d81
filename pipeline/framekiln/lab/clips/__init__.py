"""A model inside of a clip's whole way: decoded, uploaded, preprocessed, inferred, downloaded, drawn, encoded.

formats     1080p, 4K, stereo side by side; one stream, several, requests at random times, all at once
frames      the way of a few frames through the model, by phase
measure     formats, scenarios and buffer pools, each a row
"""
