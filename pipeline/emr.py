"""What EMR Serverless is told to run: the package is beside it, and this names what to run of it."""

import sys

from hourwheel_pipeline.__main__ import main

sys.exit(main())
