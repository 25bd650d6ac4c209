"""All-reduce and training between sites, softnic beside Gloo over the kernel's TCP: `python -m benchmarks.wan`.

carrier.py emulates the paths, lab.py has the hosts on them, sums.py measures all-reduces and training.py steps.
"""
