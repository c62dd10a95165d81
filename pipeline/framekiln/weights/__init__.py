"""Weights files, each verified against the lockfile by size and sha256 before it is used.

`manifests/models.yaml` names each file with its size, sha256, licence and sources. This package turns such names into
verified local paths. Only `fetch` and the modules it uses touch the network, and no run calls it.
"""
