"""``hourwheel pipeline …``"""
