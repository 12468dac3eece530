"""Log lines of the product in tests: plain text, or none.

structlog's own default draws each traceback in a frame, with the values of all local variables: up to a second each.
"""

import logging
from typing import Any

import structlog


def configure_plain_logs(*processors: Any, level: int = logging.NOTSET) -> None:
    """Log from `level` on as plain text, or to these processors."""
    plain = (structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(key_order=["event"]))
    structlog.configure(processors=processors or plain, wrapper_class=structlog.make_filtering_bound_logger(level))
