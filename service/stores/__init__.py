"""Stores on disk: registered devices, uploaded graphs, and measurements of users."""
