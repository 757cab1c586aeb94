"""Requests and answers about deployed language models."""
