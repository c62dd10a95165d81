"""Steps in a few processes of this machine, without Ray."""
