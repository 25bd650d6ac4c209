"""Measurements: how they are made, repeated, kept, and shown as tables, JSON, charts and regions of pages."""
