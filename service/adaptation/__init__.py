"""Measurements of users: read, kept apart for judging, and adapted to."""
