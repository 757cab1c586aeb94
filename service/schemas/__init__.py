"""Requests and answers as pydantic models, shared by HTTP and the command line."""
