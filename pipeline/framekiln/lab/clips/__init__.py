"""A model inside of a clip's whole way: decoded, uploaded, preprocessed, inferred, downloaded, drawn, encoded."""
