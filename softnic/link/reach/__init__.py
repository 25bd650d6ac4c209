"""Ways to peers: nodes meet through a server, learn each other's addresses, try all, follow each other to new ones, and
fall back to a relay (docs/meeting.md; docs/keys.md, "Peers that move")."""
