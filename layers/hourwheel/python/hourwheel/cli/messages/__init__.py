"""Sends, consumes and shows messages: plain, delayed and dead."""
