"""``hourwheel group …`` and ``hourwheel lag``"""
