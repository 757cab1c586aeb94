"""Measuring on this machine: collectors of rows that no public dataset has."""
