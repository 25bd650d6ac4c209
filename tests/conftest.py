"""What holds for all tests: how fast the machine is today fails none of them."""

from hypothesis import settings

settings.register_profile("softnic", deadline=None)
settings.load_profile("softnic")
