"""What EMR Serverless is told to run: the package is beside it, and this names what to run of it.

EMR knows only success and failure. A job that did its work and found something succeeded: findings and damage have
alarms of their own.
"""

import sys

from hourwheel_pipeline.__main__ import main
from hourwheel_pipeline.outcomes import failed

sys.exit(failed(main()))
