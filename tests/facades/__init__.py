"""What tests use of softnic's inside: one module a room, under the field's names.

softnic's public names (softnic.socket, softnic.MPI, softnic.codecs, softnic.gradients,
softnic.torch, softnic.Cluster) are imported as users import them. Everything else is imported from here, and only from
here: code that moves or is renamed is followed in these modules, and no test changes. Private names are read here too,
in small functions that say what they give; prefer what a public seam shows. tests/test_architecture.py holds tests to
it.
"""
