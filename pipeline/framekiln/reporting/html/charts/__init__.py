"""Histograms and curves: their values, and the places of their parts in a drawing."""
