"""The process of a meeting server: sockets and time around softnic/link/reach (docs/meeting.md)."""
