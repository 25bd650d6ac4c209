"""Links: VXLAN over UDP, a network in memory, a null link, and emulation around any of them."""
