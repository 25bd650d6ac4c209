"""What frames leave through: UDP/VXLAN between daemons, a network in memory, nowhere; and emulation around any."""
