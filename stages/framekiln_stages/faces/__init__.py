"""Faces: detection by YuNet or SCRFD, alignment, and embeddings by a network of the ArcFace family."""

from framekiln_stages.faces.stage import Faces as Faces
