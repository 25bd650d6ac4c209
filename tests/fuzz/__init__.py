"""Coverage-guided fuzzing of everything that reads what others wrote: `python -m tests.fuzz`.

Targets of native/ (tests/fuzz/native, C) run under libFuzzer with AddressSanitizer and UBSan; those of the Python
(tests/fuzz/python) under atheris, which is libFuzzer with Python's coverage. Both say what must hold whatever the input
is, so a finding is more than a crash. Inputs begin as seeds, made by the code itself, and as tests/fuzz/corpus, what
earlier runs found worth keeping, a file a target; a run's own corpus lies in build/fuzz.
"""
