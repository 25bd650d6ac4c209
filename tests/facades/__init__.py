"""Access of tests to softnic's internals: one module per package, under the field's names.

softnic's public names (softnic.socket, softnic.MPI, softnic.codecs, softnic.gradients,
softnic.torch, softnic.Cluster) are imported as users import them. Everything else is imported from here, and only from
here: when internal code moves or is renamed, these modules change and tests do not. Private names are read here too,
in small functions whose names say what they return; prefer public interfaces. tests/test_architecture.py checks this.
"""
