"""Trainings of numpy models by exchange strategy: the rank (`__main__`), runs of ranks, comparison and charts."""
