"""Jobs that lose replicas and take new ones in, by torchft: over softnic and over Gloo."""
