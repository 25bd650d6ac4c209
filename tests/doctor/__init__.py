"""Tests of softnic/doctor."""
