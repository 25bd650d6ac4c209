"""State transitions of a connection (RFC 9293, section 3.3.2) and how it ends."""

from __future__ import annotations

import errno

from softnic.tcp import arm_timers, keepalive
from softnic.tcp.flow import NEVER, Flow
from softnic.tcp.output import cancel_output, send_reset
from softnic.tcp.state import AFTER_OUR_FIN, WRITABLE, State
from softnic.tcp.trim import cancel_trim


def _enter(c: Flow, state: State) -> None:
    c.state = state
    c.established = state is State.ESTABLISHED
    c.writable = state in WRITABLE


def open_active(c: Flow) -> None:
    """This side sends the first SYN."""
    _enter(c, State.SYN_SENT)


def open_passive(c: Flow) -> None:
    """The peer's SYN was received, and ours is due."""
    _enter(c, State.SYN_RECEIVED)


def establish(c: Flow) -> None:
    """Both SYNs are acknowledged."""
    _enter(c, State.FIN_WAIT_1 if c.snd.fin_queued else State.ESTABLISHED)
    c.rcv.negotiated(c.tcp.config.window_scale if c.peer_scales else 0)


def on_fin_queued(c: Flow) -> None:
    """The application has closed its direction."""
    _enter(c, AFTER_OUR_FIN.get(c.state, c.state))


def become(c: Flow, state: State, now: float) -> None:
    """Enters a state that follows on a FIN or on its acknowledgement."""
    if state is State.TIME_WAIT:
        enter_time_wait(c, now)
    elif state is State.CLOSED:
        finish(c)
    else:
        _enter(c, state)


def enter_time_wait(c: Flow, now: float) -> None:
    """Both FINs are acknowledged; the peer's is acknowledged again should it come again."""
    _enter(c, State.TIME_WAIT)
    _release(c)
    arm_timers.arm_close(c, now + c.tcp.config.time_wait_s)
    _notify_closed(c, 0)
    oldest = c.tcp.add_time_wait(c)
    if oldest is not None:
        finish(oldest)
    c.tcp.schedule(c)


def finish(c: Flow, error: int = 0, message: str = "") -> None:
    """Enters CLOSED, with the errno and text that the application sees."""
    if c.state is State.CLOSED and c.ended:
        return
    _enter(c, State.CLOSED)
    _release(c)
    c.snd.scoreboard.clear()
    cancel_output(c)
    if not c.ended:
        c.error, c.error_message = error, message
    c.tcp.remove(c)
    if c.listener is not None:  # back to LISTEN: the application never saw the connection
        c.listener.on_closed(c)
        c.ended = True
    _notify_closed(c, error)


def abort(c: Flow, now: float, error: int = 0, message: str = "") -> None:
    """Ends the connection at once, with a RST if the peer knows of it."""
    if c.state not in (State.CLOSED, State.SYN_SENT, State.TIME_WAIT):
        send_reset(c, now)
    finish(c, error, message)


def time_out(c: Flow, waited_s: float) -> None:
    """Ends the connection because the peer has not answered for `waited_s`."""
    if c.soft_error is not None:
        finish(c, *c.soft_error)
    else:
        finish(c, errno.ETIMEDOUT, f"{c.peer_name} did not answer for {waited_s:.1f} s")


def note_soft_error(c: Flow, number: int, text: str) -> None:
    """Records an error that does not end the connection (RFC 5461); it is the reason if the connection times out."""
    c.soft_error = number, text
    c.has_soft_error = True


def clear_soft_error(c: Flow) -> None:
    c.soft_error = None
    c.has_soft_error = False


def _release(c: Flow) -> None:
    """Stops all timers and releases the buffers: nothing is sent or reassembled any more."""
    arm_timers.stop_all(c)
    keepalive.postpone(c, NEVER)
    cancel_trim(c)
    c.snd.buffer.clear()
    c.rcv.clear()
    c.send_tuning.end(c.snd.buffer)
    c.receive_tuning.end()


def _notify_closed(c: Flow, error: int) -> None:
    if c.ended:
        return
    c.ended = True
    if error:
        c.tcp.counters.connections_failed += 1
    c.on_closed(error)
