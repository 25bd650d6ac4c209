"""Trainings over real processes and links: strategies, methods, and the tables and figures of the papers."""
