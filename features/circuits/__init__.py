"""Circuits: longest paths and features of cells and connections."""
