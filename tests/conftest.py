"""Makes the helpers in this folder (`synthetic`) importable from every test folder."""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts what runs in its background with Ctrl-C ignored; children would inherit it, and some are to be stopped.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
