"""Logging of the daemon. Called once, by `serve`."""

import logging
import sys

import structlog

from controller.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Structured lines on stderr: text on a terminal, JSON otherwise. Warnings of libraries are included."""
    console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    level = getattr(logging, settings.log_level.upper())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("paddock").setLevel(level)
