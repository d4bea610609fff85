"""Fixtures live in modules named by what they fix; this file only registers them."""

import os
import signal
from pathlib import Path

from hypothesis import settings

# A shell that runs this in the background lets nobody hear Ctrl-C, which some tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Short-lived JVMs gain nothing from the second compiler and the parallel collector.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark")

# A slow example is no error: other groups of tests run beside it.
settings.register_profile("nuncius", deadline=None)
settings.load_profile("nuncius")

pytest_plugins = [
    "fix_store",
    "fix_connections",
    "fix_broker",
    "fix_coverage",
    "fix_proxy",
    "fix_quick",
    "fix_asyncio",
    "fix_servers",
]
