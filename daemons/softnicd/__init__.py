"""The daemon `softnicd`: one NIC, for the applications of a node or for a kernel.

It feeds a NIC, drains it, sends, and re-arms one timer; what happens to bytes is decided in the package softnic.

On the way of the data: streams.py reads the application's file descriptor into TCP's send buffer (`Stream.pull`, called
by stream_pump.py), daemon.py then has the node send; backwards, daemon.py has the node receive, and stream_pump.py
writes the received bytes to the application (`Stream.push`).

Reading order: config; selector, pump; control_server, handlers; regions, collectives, streams, stream_table,
stream_pump, stream_handlers; process_monitor, watchdog, daemon; tap; stall_watchdog, event_log, log.
"""
