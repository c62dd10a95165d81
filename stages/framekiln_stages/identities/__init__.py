"""Identities: the faces of a whole run, grouped into people by HDBSCAN over their embeddings."""

from framekiln_stages.identities.stage import Identities as Identities
