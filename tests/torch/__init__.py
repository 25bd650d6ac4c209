"""Tests of the PyTorch backend. Without PyTorch each of their modules is skipped."""

from tests import needs

needs.module("torch")
