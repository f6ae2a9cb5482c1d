"""Where the servers are that the applications use (tests/applications/run tells)."""

import os
import shlex
import subprocess
import threading

PORTS = [int(port) for port in os.environ["ORDO_PORTS"].split()]
URLS = [f"redis://127.0.0.1:{port}/0" for port in PORTS]
# The node that is not killed.
KEPT = PORTS[-1]
FAULT = shlex.split(os.environ["ORDO_FAULT"])


class Fault(threading.Thread):
    """Kills a node and starts it again, if there are several, while the application goes on."""

    def run(self):
        self.failed = subprocess.run(FAULT).returncode != 0 if FAULT else False

    def finish(self):
        self.join()
        assert not self.failed, "the node is not back"
