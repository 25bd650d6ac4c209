"""Tests of softnic/measure."""
