"""Tests of softnic.torchft."""
