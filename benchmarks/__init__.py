"""What developers measure, on one harness: `python -m benchmarks.NAME`. `papers` reproduces the papers."""
