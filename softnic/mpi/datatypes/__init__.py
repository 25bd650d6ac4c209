"""Datatypes: predefined and derived ones, and the memory that they describe."""
