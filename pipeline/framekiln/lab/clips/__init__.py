"""A model in a clip's whole pipeline: decoded, uploaded, preprocessed, inferred, downloaded, drawn, encoded."""
