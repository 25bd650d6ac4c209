"""Programs that know nothing of softnic, each a server and a client: run by tests/daemon/test_programs.py.

`python with_NAME.py server` listens at port 8000 of its node and prints `ready`; `python with_NAME.py client` talks to
`node0` and exits with 0 if the answers are right.
"""
