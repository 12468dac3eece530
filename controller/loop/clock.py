"""Wall clock of the machine."""

import time


class SystemClock:
    """ports.Clock over the machine's wall clock."""

    def now(self) -> float:
        return time.time()
