"""The same training by every method, over real processes, NICs and emulated links: what each gives, at what cost."""
