"""What frames leave through: UDP/VXLAN between daemons, a network in memory, and emulation around either."""
