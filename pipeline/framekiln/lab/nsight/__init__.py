"""Nsight Systems and Nsight Compute around a few calls of a model."""
