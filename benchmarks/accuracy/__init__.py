"""Accuracy of the stages on real media with ground truth, beside the libraries called directly.

Each module measures one subject and has a function `measure()`. docs/measuring/accuracy.md explains the figures.
"""
