"""Requests: calls in progress, alone and in sets, and what became of them."""
