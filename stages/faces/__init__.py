"""Faces: detection by YuNet or SCRFD, alignment, and embeddings by a network of the ArcFace family."""

from stages.faces.stage import Faces as Faces
