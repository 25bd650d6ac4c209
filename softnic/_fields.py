"""The fields of flows as attributes (native/tcp/views.c): the second module in the library of softnic._native.

Both work on the same flows, so C stands once for both. Python finds a module by the name of its library only, and loads
others from it as its documentation describes ("Initializing C modules", multiple modules in one library).
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

from softnic import _native

_spec = spec_from_file_location(__name__, _native.__file__, loader=ExtensionFileLoader(__name__, _native.__file__))
assert _spec is not None
_module = module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
