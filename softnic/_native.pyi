"""What cffi builds of native/: `lib` holds the functions of its headers, `ffi` makes buffers for them."""

from typing import Any

ffi: Any
lib: Any
