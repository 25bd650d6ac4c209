"""softnic beside others in the same network namespaces, over the same shaped links, in the same run.

`python -m benchmarks.peers`, from the root of the checkout, as root. See __main__.
"""
