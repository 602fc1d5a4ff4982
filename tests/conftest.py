"""For all tests."""

import signal

# Where they run in the background of a shell without job control, Ctrl-C is ignored by everything they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
