"""Requests and answers that only HTTP uses, as pydantic models."""
