"""Answers that only HTTP gives, as pydantic models."""
