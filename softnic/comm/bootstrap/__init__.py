"""How the ranks of a job find each other, and start NICs where they were given none."""
