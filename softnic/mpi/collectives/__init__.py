"""Collective calls, on buffers and on objects, which the NICs execute."""
