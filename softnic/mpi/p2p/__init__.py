"""The calls with one message: sends, receives and probes."""
