"""Tests of the PyTorch backend. Each module is skipped without PyTorch."""

from tests import needs

needs.module("torch")
