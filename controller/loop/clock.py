"""The machine's clock."""

import time


class SystemClock:
    """ports.Clock over the machine's own."""

    def now(self) -> float:
        return time.time()
